//! Numbers of egress interfaces, by which the BPF program finds the next copy, and the order of the
//! copies of a packet. Both are determined before a group changes.

use std::collections::BTreeMap;

use super::abi::{ChildEntryRange, INTERFACE_INDICES, RELAY_INTERFACES_MAX};
use super::{RelayChild, RelayGroupError};

/// Numbers of the egress interfaces of copies, by interface index.
#[derive(Clone, Default, Debug)]
pub(super) struct InterfaceNumbers(BTreeMap<u32, u8>);

impl InterfaceNumbers {
    /// Assigns free numbers to the interfaces of these children that have none. Fails if no number
    /// is free or an index is beyond the table of interfaces; the numbers assigned before then
    /// stay.
    pub(super) fn assign(&mut self, children: &[RelayChild]) -> Result<(), RelayGroupError> {
        for interface in children.iter().filter_map(|child| child.interface.as_ref()) {
            if interface.index >= INTERFACE_INDICES {
                let (interface, index) = (interface.name.clone(), interface.index);
                return Err(RelayGroupError::InterfaceIndex { interface, index });
            }
            if !self.0.contains_key(&interface.index) {
                let is_free = |number: &u8| !self.0.values().any(|taken| taken == number);
                let number = (0..RELAY_INTERFACES_MAX as u8).find(is_free);
                self.0.insert(interface.index, number.ok_or(RelayGroupError::InterfacesFull)?);
            }
        }
        Ok(())
    }

    /// Releases the numbers of the interfaces for whose index `is_used` returns false, and returns
    /// those indices.
    pub(super) fn release(&mut self, is_used: impl Fn(u32) -> bool) -> Vec<u32> {
        let unused: Vec<u32> = self.0.keys().copied().filter(|&index| !is_used(index)).collect();
        for index in &unused {
            self.0.remove(index);
        }
        unused
    }

    /// Returns the interfaces as pairs of index and number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u8)> + '_ {
        self.0.iter().map(|(&index, &number)| (index, number))
    }

    /// Returns the children in the order of their copies, by number of the interface and then in
    /// the order of `children`, and the range of each interface's rows, which begin at `first`.
    /// Children without an interface are omitted.
    pub(super) fn egress_order<'a>(
        &self,
        children: &'a [RelayChild],
        first: u32,
    ) -> (Vec<&'a RelayChild>, [ChildEntryRange; RELAY_INTERFACES_MAX]) {
        let number = |child: &RelayChild| {
            let interface = child.interface.as_ref();
            interface.and_then(|interface| self.0.get(&interface.index)).map_or(0, |&n| n)
        };
        let mut ordered: Vec<_> =
            children.iter().filter(|child| child.interface.is_some()).collect();
        ordered.sort_by_key(|child| number(child));
        let mut spans = [ChildEntryRange::default(); RELAY_INTERFACES_MAX];
        for (row, child) in (first..).zip(&ordered) {
            let span = &mut spans[usize::from(number(child))];
            if span.count == 0 {
                span.first = row;
            }
            span.count += 1;
        }
        (ordered, spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interface;

    fn child(index: u32, port: u16) -> RelayChild {
        RelayChild {
            destination: ([192, 0, 2, 9], port).into(),
            source: ([192, 0, 2, 1], 5000).into(),
            interface: Some(Interface { index, name: format!("eth{index}") }),
            source_mac: [0; 6],
            next_hop: None,
        }
    }

    #[test]
    fn copies_leave_interface_by_interface_in_their_order() {
        let nowhere = RelayChild { interface: None, ..child(0, 9) };
        let children =
            [child(30, 1), child(20, 2), child(30, 3), nowhere, child(20, 4), child(30, 5)];
        let mut interfaces = InterfaceNumbers::default();
        interfaces.assign(&children).unwrap();
        let (ordered, spans) = interfaces.egress_order(&children, 100);
        let ports: Vec<u16> = ordered.iter().map(|child| child.destination.port()).collect();
        assert_eq!(ports, [1, 3, 5, 2, 4]);
        assert_eq!(spans[0], ChildEntryRange { first: 100, count: 3 });
        assert_eq!(spans[1], ChildEntryRange { first: 103, count: 2 });
        assert_eq!(spans[2], ChildEntryRange::default());
    }

    #[test]
    fn numbers_are_reused_after_their_release() {
        let mut interfaces = InterfaceNumbers::default();
        let all: Vec<_> = (1..=RELAY_INTERFACES_MAX as u32).map(|i| child(i, 1)).collect();
        interfaces.assign(&all).unwrap();
        let one_more = [child(1000, 1)];
        assert!(matches!(interfaces.assign(&one_more), Err(RelayGroupError::InterfacesFull)));
        assert_eq!(interfaces.release(|index| index != 7), [7]);
        interfaces.assign(&one_more).unwrap();
        assert_eq!(interfaces.iter().find(|&(index, _)| index == 1000), Some((1000, 6)));
    }

    #[test]
    fn an_index_beyond_the_table_is_refused() {
        let error = InterfaceNumbers::default().assign(&[child(1 << 16, 1)]).unwrap_err();
        let message = "interface 'eth65536' has index 65536, and the BPF map ends at 65536; \
                    relay by sockets there";
        assert_eq!(error.to_string(), message);
    }
}

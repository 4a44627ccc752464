//! Lookup tables of the kernel: destinations of groups' packets, permitted sources, source
//! addresses of children and of the relay itself. Before a change packets find all of the old
//! entries and all of the new ones, and after it only the new ones.

use std::net::{IpAddr, SocketAddr};

use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use zerocopy::IntoBytes;

use super::abi::{PORTS_OF_WORD, RawEndpointKey, SOURCE_ALLOWED, SourceKey};
use super::child::in_front;
use super::group::{GroupState, Sources};
use super::{RelayChild, RelayPrograms};
use crate::responder::listen_key;
use crate::{XdpError, object};

impl RelayPrograms {
    /// Adds these destinations to the group's, without removing others.
    pub(super) fn list_addresses(
        &self,
        group_state: &GroupState,
        addresses: &[SocketAddr],
    ) -> Result<(), XdpError> {
        let numbers = self.loaded.map("relay_numbers")?;
        let new = addresses.iter().filter(|address| !group_state.addresses.contains(address));
        for address in new {
            numbers
                .update(
                    listen_key(*address).as_bytes(),
                    &group_state.number.to_ne_bytes(),
                    MapFlags::ANY,
                )
                .map_err(|error| map_failed(&error))?;
        }
        Ok(())
    }

    /// Removes the destinations in `from` that are not in `to`.
    pub(super) fn forget_addresses(
        &self,
        from: &[SocketAddr],
        to: &[SocketAddr],
    ) -> Result<(), XdpError> {
        let numbers = self.loaded.map("relay_numbers")?;
        let gone = from.iter().filter(|address| !to.contains(address));
        gone.map(|address| listen_key(*address))
            .try_for_each(|key| absent_is_fine(numbers.delete(key.as_bytes())))
    }

    /// Adds the addresses at which these children listen, without removing others.
    pub(super) fn list_ends(
        &self,
        group_state: &GroupState,
        children: &[RelayChild],
    ) -> Result<(), XdpError> {
        let ends = self.loaded.map("relay_endpoints")?;
        for RelayChild { destination, .. } in children {
            ends.update(end_key(group_state.number, *destination).as_bytes(), &[1], MapFlags::ANY)
                .map_err(|error| map_failed(&error))?;
        }
        Ok(())
    }

    /// Removes the addresses at which these listen, except those that are still children.
    pub(super) fn forget_ends(
        &self,
        group_state: &GroupState,
        mut gone: impl Iterator<Item = SocketAddr>,
    ) -> Result<(), XdpError> {
        let ends = self.loaded.map("relay_endpoints")?;
        gone.try_for_each(|end| {
            let stays = group_state.children.iter().any(|child| child.destination == end);
            let forget = || ends.delete(end_key(group_state.number, end).as_bytes());
            if stays { Ok(()) } else { absent_is_fine(forget()) }
        })
    }

    /// Adds the new entries. Each combines the roles of an address before and after the change.
    pub(super) fn list_sources(
        &self,
        group: u32,
        from: &Sources,
        to: &Sources,
    ) -> Result<(), XdpError> {
        let meanwhile = to.iter().map(|(prefix, what)| {
            let before = from.get(prefix).map_or(0, |before| before & !SOURCE_ALLOWED);
            (*prefix, what | before)
        });
        self.write_sources(group, from, meanwhile)
    }

    /// Changes the entries from `from`, all of which exist, to `to`.
    pub(super) fn settle_sources(
        &self,
        group: u32,
        to: &Sources,
        from: &Sources,
    ) -> Result<(), XdpError> {
        self.write_sources(group, &Sources::new(), to.iter().map(|(prefix, what)| (*prefix, *what)))
            .and(self.forget_sources(group, from, to))
    }

    fn write_sources(
        &self,
        group: u32,
        there: &Sources,
        entries: impl Iterator<Item = ((IpAddr, u8), u8)>,
    ) -> Result<(), XdpError> {
        let sources = self.loaded.map("relay_sources")?;
        for (prefix, what) in entries.filter(|(prefix, what)| there.get(prefix) != Some(what)) {
            sources
                .update(source_key(group, prefix).as_bytes(), &[what], MapFlags::ANY)
                .map_err(|error| map_failed(&error))?;
        }
        Ok(())
    }

    /// Removes the entries in `from` that are not in `to`.
    fn forget_sources(&self, group: u32, from: &Sources, to: &Sources) -> Result<(), XdpError> {
        let sources = self.loaded.map("relay_sources")?;
        let gone = from.keys().filter(|prefix| !to.contains_key(prefix));
        gone.map(|prefix| source_key(group, *prefix))
            .try_for_each(|key| absent_is_fine(sources.delete(key.as_bytes())))
    }

    /// Removes all entries of a group.
    pub(super) fn forget_lists(&self, group_state: &GroupState) -> Result<(), XdpError> {
        let ends = self.loaded.map("relay_endpoints")?;
        let children =
            group_state.children.iter().map(|child| end_key(group_state.number, child.destination));
        let done = children.map(|key| absent_is_fine(ends.delete(key.as_bytes())));
        done.fold(Ok(()), Result::and)
            .and(self.forget_sources(group_state.number, &group_state.sources, &Sources::new()))
            .and(self.forget_addresses(&group_state.addresses, &[]))
    }

    /// Sets the ports at which groups listen: those of all groups, and `more`.
    pub(super) fn mark_ports(&self, more: Option<u16>) {
        let mut words = vec![0_u64; self.ports.entries() as usize];
        for port in self.group_states.keys().map(SocketAddr::port).chain(more) {
            words[usize::from(port / PORTS_OF_WORD)] |= 1 << (port % PORTS_OF_WORD);
        }
        for (index, word) in (0..).zip(&words) {
            if self.ports.read(index) != *word {
                self.ports.write(index, word);
            }
        }
    }
}

fn source_key(group: u32, (address, length): (IpAddr, u8)) -> SourceKey {
    SourceKey { length: u32::BITS + u32::from(length), group, address: in_front(address) }
}

fn end_key(group: u32, end: SocketAddr) -> RawEndpointKey {
    let (port, address) = (end.port().to_be_bytes(), in_front(end.ip()));
    RawEndpointKey { group, port, reserved: 0, address }
}

pub(super) fn map_failed(error: &libbpf_rs::Error) -> XdpError {
    XdpError::Map(object::to_io(error))
}

pub(super) fn absent_is_fine(done: libbpf_rs::Result<()>) -> Result<(), XdpError> {
    match done {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(map_failed(&error)),
        _ => Ok(()),
    }
}

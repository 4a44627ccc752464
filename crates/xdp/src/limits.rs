//! Maps of the responder for rate limits, allow and deny lists, and interleaved state. The rules
//! themselves are in `horolog-server`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapFlags};
use zerocopy::IntoBytes;

use crate::XdpError;
use crate::abi::{
    LIMIT_WAYS, LISTED_ALLOWED, LISTED_DENIED, LimitRules, LimitTableSet, PrefixListKeyIpv4,
    PrefixListKeyIpv6, RawResponderConfig,
};
use crate::map::MappedArrayMap;
use crate::object::{self, LoadedBpfObject};

/// Number of epochs of the lists that a word of the rate-limit table can hold, 1 to 15; 0 marks an
/// unchecked client.
const EPOCHS: u32 = 15;
/// `EPOCH_SHIFT`: position of the epoch in a word of the rate-limit table.
const EPOCH_SHIFT: u32 = 44;
const EPOCH_MASK: u64 = 15 << EPOCH_SHIFT;

/// Constant settings of a loaded responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponderSettings {
    /// Key of the hash function of client addresses.
    pub key: [u64; 2],
    /// Number of clients with state for interleaved mode, a power of two; 0 disables interleaved
    /// mode.
    pub interleaved_slots: u32,
    /// Limits and lists, if there are any.
    pub limits: Option<LimitTableSettings>,
    /// Receive queues of all interfaces from which requests longer than one header are redirected
    /// to `AF_XDP` sockets; 0 if such requests are passed.
    pub af_xdp_queues: u32,
    /// True if PTP's `NetSync` Monitor is answered.
    pub ptp_monitor: bool,
}

/// Constant settings of the rate-limit table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitTableSettings {
    /// Number of sets of the rate-limit table, a power of two; each holds four clients.
    pub sets: u32,
    /// Mask of the bits of an IPv4 address that identify a client: the bytes of the address, in
    /// network order, in the lower 32 bits of a native 64-bit word. The bits above them do not
    /// distinguish clients.
    pub ipv4_mask: u64,
    /// Mask of the bits of an IPv6 address that identify a client: two native words with its first
    /// and last 8 bytes in network order.
    pub ipv6_mask: [u64; 2],
}

impl ResponderSettings {
    /// Settings without limits, lists, interleaved mode, redirection to `AF_XDP` sockets and
    /// `NetSync` Monitor.
    pub const BASIC: Self = Self {
        key: [0; 2],
        interleaved_slots: 0,
        limits: None,
        af_xdp_queues: 0,
        ptp_monitor: false,
    };

    pub(crate) fn responder_config(&self) -> RawResponderConfig {
        let limits =
            self.limits.unwrap_or(LimitTableSettings { sets: 1, ipv4_mask: 0, ipv6_mask: [0; 2] });
        RawResponderConfig {
            hash_key: self.key,
            ipv4_mask: limits.ipv4_mask,
            ipv6_mask: limits.ipv6_mask,
            limit_sets_mask: limits.sets - 1,
            interleaved_mask: self.interleaved_slots.saturating_sub(1),
            limits: self.limits.is_some().into(),
            interleaved: (self.interleaved_slots != 0).into(),
            redirect_long: (self.af_xdp_queues != 0).into(),
            ptp_monitor: self.ptp_monitor.into(),
            reserved: [0; 4],
        }
    }

    /// Returns the names of the maps and their numbers of entries.
    pub(crate) fn map_sizes(&self) -> [(&'static str, u32); 4] {
        let sets = self.limits.map_or(1, |limits| limits.sets);
        let queues = self.af_xdp_queues.max(1);
        [
            ("limit_sets", sets),
            ("interleaved_slots", self.interleaved_slots.max(1)),
            ("queues", queues),
            ("queue_rows", queues),
        ]
    }
}

/// Prefix of an allow or deny list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListedPrefix {
    /// Address of the prefix; bits beyond `length` are ignored.
    pub address: IpAddr,
    /// Length of the prefix, in bits.
    pub length: u8,
    /// True if the addresses in the prefix are denied; otherwise they are allowed.
    pub denied: bool,
}

/// Maps of rate limits and lists. Only one thread may change them at a time.
pub(crate) struct LimitMaps {
    rules: MappedArrayMap<LimitRules>,
    sets: MappedArrayMap<LimitTableSet>,
    installed: InstalledPrefixes,
    /// True if the last change failed before it was complete.
    is_change_incomplete: bool,
}

/// Prefixes that the list maps contain, updated after every change of an entry, because any of them
/// may fail.
#[derive(Default)]
struct InstalledPrefixes(BTreeSet<ListedPrefix>);

impl InstalledPrefixes {
    /// Adds the wanted prefixes that are missing, longest first.
    fn add_missing(
        &mut self,
        wanted: &BTreeSet<ListedPrefix>,
        insert: impl Fn(&ListedPrefix) -> Result<(), XdpError>,
    ) -> Result<(), XdpError> {
        let mut new: Vec<_> = wanted.difference(&self.0).copied().collect();
        new.sort_unstable_by_key(|prefix| Reverse(prefix.length));
        for prefix in new {
            insert(&prefix)?;
            // The entry replaces one of the other verdict, if there was one.
            self.0.remove(&ListedPrefix { denied: !prefix.denied, ..prefix });
            self.0.insert(prefix);
        }
        Ok(())
    }

    /// Deletes the prefixes that are not wanted, shortest first.
    fn remove_unwanted(
        &mut self,
        wanted: &BTreeSet<ListedPrefix>,
        delete: impl Fn(&ListedPrefix) -> Result<(), XdpError>,
    ) -> Result<(), XdpError> {
        let mut unwanted: Vec<_> = self.0.difference(wanted).copied().collect();
        unwanted.sort_unstable_by_key(|prefix| prefix.length);
        for prefix in unwanted {
            delete(&prefix)?;
            self.0.remove(&prefix);
        }
        Ok(())
    }
}

impl LimitMaps {
    pub(crate) fn new(
        rules: MappedArrayMap<LimitRules>,
        sets: MappedArrayMap<LimitTableSet>,
    ) -> Self {
        Self { rules, sets, installed: InstalledPrefixes::default(), is_change_incomplete: false }
    }

    /// Returns the number of clients with an entry in the rate-limit table.
    pub(crate) fn count_clients(&self) -> u64 {
        let known = |set: u32| self.sets.read(set).words.iter().filter(|word| **word != 0).count();
        (0..self.sets.entries()).map(|set| known(set) as u64).sum()
    }

    /// Replaces the rules, except their epoch, and the lists. During the change the old rules may
    /// apply to some clients and the new ones to others, but a client that both permit is never
    /// refused: new prefixes are added longest first, then old ones are removed shortest first, so
    /// the longest prefix that contains an address is always that of the old lists or that of the
    /// new ones. A failed change keeps its partial effect; the next call completes it.
    pub(crate) fn set_rules(
        &mut self,
        loaded: &LoadedBpfObject,
        rules: &LimitRules,
        prefixes: &[ListedPrefix],
    ) -> Result<(), XdpError> {
        let wanted = prefixes.iter().copied().collect();
        let before = self.rules.read(0);
        // After a failed change, clients were checked against incomplete lists.
        let lists_unchanged = !self.is_change_incomplete
            && wanted == self.installed.0
            && (before.lists, before.others_denied) == (rules.lists, rules.others_denied);
        self.is_change_incomplete = true;
        self.installed.add_missing(&wanted, |prefix| {
            let verdict = if prefix.denied { LISTED_DENIED } else { LISTED_ALLOWED };
            with_map_key(prefix, |map, key| {
                let updated = loaded.map(map)?.update(key, &[verdict], MapFlags::ANY);
                updated.map_err(|error| map_error(&error))
            })
        })?;
        if before.others_denied != 0 && rules.others_denied == 0 {
            // Clients whose prefix is about to be removed must not be denied in between.
            self.rules.write(0, &LimitRules { others_denied: 0, ..before });
        }
        self.installed.remove_unwanted(&wanted, |prefix| {
            with_map_key(prefix, |map, key| match loaded.map(map)?.delete(key) {
                Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                    Err(map_error(&error))
                }
                _ => Ok(()),
            })
        })?;
        let next_epoch =
            if lists_unchanged { before.epoch.max(1) } else { before.epoch % EPOCHS + 1 };
        if next_epoch != before.epoch {
            self.clear_epoch(next_epoch);
        }
        self.rules.write(0, &LimitRules { epoch: next_epoch, ..*rules });
        self.is_change_incomplete = false;
        Ok(())
    }

    /// Clears this epoch, which is not in force yet, from words left over from its previous use, so
    /// that their clients are checked again.
    fn clear_epoch(&self, epoch: u32) {
        let epoch = u64::from(epoch) << EPOCH_SHIFT;
        for set in 0..self.sets.entries() {
            for way in 0..LIMIT_WAYS {
                let word = self.sets.atomic(set, way * size_of::<u64>());
                if word.load(Ordering::Relaxed) & EPOCH_MASK == epoch {
                    word.fetch_and(!EPOCH_MASK, Ordering::Release);
                }
            }
        }
    }
}

fn with_map_key(
    prefix: &ListedPrefix,
    call: impl FnOnce(&'static str, &[u8]) -> Result<(), XdpError>,
) -> Result<(), XdpError> {
    let length = prefix.length.into();
    match prefix.address {
        IpAddr::V4(ip) => {
            call("list_ipv4", PrefixListKeyIpv4 { length, address: ip.octets() }.as_bytes())
        }
        IpAddr::V6(ip) => {
            call("list_ipv6", PrefixListKeyIpv6 { length, address: ip.octets() }.as_bytes())
        }
    }
}

fn map_error(error: &libbpf_rs::Error) -> XdpError {
    XdpError::Map(object::to_io_error(error))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io;

    use super::*;

    fn prefix(address: [u8; 4], length: u8, denied: bool) -> ListedPrefix {
        ListedPrefix { address: address.into(), length, denied }
    }

    /// The calls of a change from `listed` to `wanted`, of which only so many succeed.
    fn change(
        listed: &mut InstalledPrefixes,
        wanted: &[ListedPrefix],
        succeed: usize,
    ) -> Vec<ListedPrefix> {
        let calls = RefCell::new(Vec::new());
        let call = |prefix: &ListedPrefix| {
            let mut calls = calls.borrow_mut();
            if calls.len() == succeed {
                return Err(XdpError::Map(io::ErrorKind::OutOfMemory.into()));
            }
            calls.push(*prefix);
            Ok(())
        };
        let wanted = wanted.iter().copied().collect();
        let changed =
            listed.add_missing(&wanted, call).and_then(|()| listed.remove_unwanted(&wanted, call));
        assert_eq!(changed.is_ok(), listed.0 == wanted);
        calls.into_inner()
    }

    #[test]
    fn a_change_goes_on_where_the_last_one_broke_off() {
        let (old, all) = (prefix([10, 1, 0, 0], 16, true), prefix([0; 4], 0, true));
        let (wide, narrow) = (prefix([10, 0, 0, 0], 8, false), prefix([10, 0, 0, 1], 32, false));
        let mut listed = InstalledPrefixes::default();
        assert_eq!(change(&mut listed, &[old, all], 2), [old, all]);
        assert_eq!(change(&mut listed, &[wide, narrow], 1), [narrow]);
        assert_eq!(change(&mut listed, &[old, all], 2), [narrow], "what was put there goes");
        assert_eq!(change(&mut listed, &[wide, narrow], 3), [narrow, wide, all]);
        assert_eq!(change(&mut listed, &[wide, narrow], 1), [old], "what was left goes");
        let denied = ListedPrefix { denied: true, ..wide };
        assert_eq!(change(&mut listed, &[denied, narrow], 1), [denied], "it takes its place");
    }
}

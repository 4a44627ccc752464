//! Limits, lists and interleaved state of the responder. Decides nothing: the rules are in
//! `horolog-server`.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapFlags};
use zerocopy::IntoBytes;

use crate::XdpError;
use crate::abi::{
    LIMIT_WAYS, LISTED_ALLOWED, LISTED_DENIED, LimitRules, LimitSet, ListKeyIpv4, ListKeyIpv6,
    ResponderConfig,
};
use crate::map::SharedArray;
use crate::object::{self, LoadedObject};

/// Epochs of the lists that a client's word can distinguish, from 1 on; 0 is never in force.
const EPOCHS: u32 = 15;
/// Position of the epoch in a word: `EPOCH_SHIFT`.
const EPOCH_SHIFT: u32 = 44;
const EPOCH: u64 = 15 << EPOCH_SHIFT;

/// Constant settings of a loaded responder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponderSettings {
    /// Key of the hash of addresses.
    pub key: [u64; 2],
    /// Clients with state for interleaved mode, a power of two; 0 turns it off.
    pub interleaved_slots: u32,
    /// Limits and lists, if there are any.
    pub limits: Option<LimitSettings>,
    /// Receive queues, of all interfaces together, whose requests longer than a header are
    /// redirected to `AF_XDP` sockets; 0 if all such requests are passed.
    pub af_xdp_queues: u32,
    /// True if PTP's `NetSync` Monitor is answered.
    pub ptp_monitor: bool,
}

/// Constant settings of the limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitSettings {
    /// Sets of four clients each, a power of two.
    pub sets: u32,
    /// Bits of an IPv4 address, as the lower half of the word that it is the end of, that identify
    /// a client; in the order of the packet's bytes.
    pub ipv4_mask: u64,
    /// Bits of the two halves of an IPv6 address that identify a client.
    pub ipv6_mask: [u64; 2],
}

impl ResponderSettings {
    /// Settings with neither limits nor interleaved mode.
    pub const PLAIN: Self = Self {
        key: [0; 2],
        interleaved_slots: 0,
        limits: None,
        af_xdp_queues: 0,
        ptp_monitor: false,
    };

    pub(crate) fn config(&self) -> ResponderConfig {
        let limits =
            self.limits.unwrap_or(LimitSettings { sets: 1, ipv4_mask: 0, ipv6_mask: [0; 2] });
        ResponderConfig {
            key: self.key,
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

    /// Returns the numbers of entries of the maps, by name.
    pub(crate) fn sizes(&self) -> [(&'static str, u32); 4] {
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

/// A prefix in a list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ListedPrefix {
    /// Address; the bits after the prefix are ignored.
    pub address: IpAddr,
    /// Length in bits.
    pub length: u8,
    /// True if its addresses are denied; otherwise they are allowed.
    pub denied: bool,
}

/// Maps of limits and lists. One thread changes them at a time.
pub(crate) struct LimitMaps {
    rules: SharedArray<LimitRules>,
    sets: SharedArray<LimitSet>,
    listed: PrefixMaps,
    /// True if the last change failed half-way.
    broken_off: bool,
}

/// Contents of the maps of lists: recorded call by call, because any of them may fail.
#[derive(Default)]
struct PrefixMaps(BTreeSet<ListedPrefix>);

impl PrefixMaps {
    /// Adds the missing prefixes among those wanted, the longest first.
    fn add(
        &mut self,
        wanted: &BTreeSet<ListedPrefix>,
        put: impl Fn(&ListedPrefix) -> Result<(), XdpError>,
    ) -> Result<(), XdpError> {
        let mut new: Vec<_> = wanted.difference(&self.0).copied().collect();
        new.sort_unstable_by_key(|prefix| Reverse(prefix.length));
        for prefix in new {
            put(&prefix)?;
            // It replaces the other verdict.
            self.0.remove(&ListedPrefix { denied: !prefix.denied, ..prefix });
            self.0.insert(prefix);
        }
        Ok(())
    }

    /// Deletes the prefixes that are not wanted, the shortest first.
    fn keep(
        &mut self,
        wanted: &BTreeSet<ListedPrefix>,
        delete: impl Fn(&ListedPrefix) -> Result<(), XdpError>,
    ) -> Result<(), XdpError> {
        let mut gone: Vec<_> = self.0.difference(wanted).copied().collect();
        gone.sort_unstable_by_key(|prefix| prefix.length);
        for prefix in gone {
            delete(&prefix)?;
            self.0.remove(&prefix);
        }
        Ok(())
    }
}

impl LimitMaps {
    pub(crate) fn new(rules: SharedArray<LimitRules>, sets: SharedArray<LimitSet>) -> Self {
        Self { rules, sets, listed: PrefixMaps::default(), broken_off: false }
    }

    /// Returns the number of clients with an entry.
    pub(crate) fn clients(&self) -> u64 {
        let known = |set: u32| self.sets.read(set).words.iter().filter(|word| **word != 0).count();
        (0..self.sets.entries()).map(|set| known(set) as u64).sum()
    }

    /// Sets other rules, and replaces the lists. Until it returns, the old ones may apply to some
    /// clients and the new ones to others, but clients served by both are served throughout: new
    /// prefixes are added, the longest first, before old ones are removed, the shortest first. So
    /// the longest that contains an address is at any instant the one that decides by the old
    /// lists, or by the new ones. A change that fails keeps its partial effect, and the next one
    /// continues from there.
    pub(crate) fn set(
        &mut self,
        loaded: &LoadedObject,
        rules: &LimitRules,
        prefixes: &[ListedPrefix],
    ) -> Result<(), XdpError> {
        let wanted = prefixes.iter().copied().collect();
        let before = self.rules.read(0);
        // After a failed change, clients were checked against incomplete lists.
        let same_lists = !self.broken_off
            && wanted == self.listed.0
            && (before.lists, before.others_denied) == (rules.lists, rules.others_denied);
        self.broken_off = true;
        self.listed.add(&wanted, |prefix| {
            let verdict = if prefix.denied { LISTED_DENIED } else { LISTED_ALLOWED };
            with_key(prefix, |map, key| {
                let updated = loaded.map(map)?.update(key, &[verdict], MapFlags::ANY);
                updated.map_err(|error| failed(&error))
            })
        })?;
        if before.others_denied != 0 && rules.others_denied == 0 {
            // Clients whose prefix is removed must not be denied for a moment.
            self.rules.write(0, &LimitRules { others_denied: 0, ..before });
        }
        self.listed.keep(&wanted, |prefix| {
            with_key(prefix, |map, key| match loaded.map(map)?.delete(key) {
                Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => Err(failed(&error)),
                _ => Ok(()),
            })
        })?;
        let next = if same_lists { before.epoch.max(1) } else { before.epoch % EPOCHS + 1 };
        if next != before.epoch {
            self.forget_verdicts_of(next);
        }
        self.rules.write(0, &LimitRules { epoch: next, ..*rules });
        self.broken_off = false;
        Ok(())
    }

    /// Removes this epoch, which is not in force yet, from words left over from its last use, so
    /// that their clients are looked up again.
    fn forget_verdicts_of(&self, epoch: u32) {
        let epoch = u64::from(epoch) << EPOCH_SHIFT;
        for set in 0..self.sets.entries() {
            for way in 0..LIMIT_WAYS {
                let word = self.sets.atomic(set, way * size_of::<u64>());
                if word.load(Ordering::Relaxed) & EPOCH == epoch {
                    word.fetch_and(!EPOCH, Ordering::Release);
                }
            }
        }
    }
}

fn with_key(
    prefix: &ListedPrefix,
    call: impl FnOnce(&'static str, &[u8]) -> Result<(), XdpError>,
) -> Result<(), XdpError> {
    let length = prefix.length.into();
    match prefix.address {
        IpAddr::V4(ip) => {
            call("list_ipv4", ListKeyIpv4 { length, address: ip.octets() }.as_bytes())
        }
        IpAddr::V6(ip) => {
            call("list_ipv6", ListKeyIpv6 { length, address: ip.octets() }.as_bytes())
        }
    }
}

fn failed(error: &libbpf_rs::Error) -> XdpError {
    XdpError::Map(object::to_io(error))
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
        listed: &mut PrefixMaps,
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
        let changed = listed.add(&wanted, call).and_then(|()| listed.keep(&wanted, call));
        assert_eq!(changed.is_ok(), listed.0 == wanted);
        calls.into_inner()
    }

    #[test]
    fn a_change_goes_on_where_the_last_one_broke_off() {
        let (old, all) = (prefix([10, 1, 0, 0], 16, true), prefix([0; 4], 0, true));
        let (wide, narrow) = (prefix([10, 0, 0, 0], 8, false), prefix([10, 0, 0, 1], 32, false));
        let mut listed = PrefixMaps::default();
        assert_eq!(change(&mut listed, &[old, all], 2), [old, all]);
        assert_eq!(change(&mut listed, &[wide, narrow], 1), [narrow]);
        assert_eq!(change(&mut listed, &[old, all], 2), [narrow], "what was put there goes");
        assert_eq!(change(&mut listed, &[wide, narrow], 3), [narrow, wide, all]);
        assert_eq!(change(&mut listed, &[wide, narrow], 1), [old], "what was left goes");
        let denied = ListedPrefix { denied: true, ..wide };
        assert_eq!(change(&mut listed, &[denied, narrow], 1), [denied], "it takes its place");
    }
}

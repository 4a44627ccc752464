//! Lists of allowed and denied prefixes, of which the longest that matches an address decides. They
//! are the socket engine's equivalent of the BPF program's LPM tries.

use std::collections::HashMap;
use std::net::IpAddr;

use horolog_wire::prefix::Prefix;

/// Prefixes of one IP version, as left-aligned bits.
#[derive(Clone, Debug, Default)]
struct IpVersionPrefixes {
    /// Prefix lengths in use, the longest first.
    lengths: Vec<u8>,
    denied: HashMap<(u8, u128), bool>,
}

/// Prefixes of both IP versions, and the decision on all other addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixLists {
    families: [IpVersionPrefixes; 2],
    others_denied: bool,
}

impl PrefixLists {
    /// Creates the lists. If any prefix is allowed explicitly, all addresses outside the lists are
    /// denied; otherwise they are allowed.
    pub(crate) fn new(allow: &[Prefix], deny: &[Prefix]) -> Self {
        let mut lists = Self { others_denied: !allow.is_empty(), ..Self::default() };
        for (prefixes, denied) in [(allow, false), (deny, true)] {
            for prefix in prefixes {
                let family = &mut lists.families[usize::from(prefix.address().is_ipv4())];
                let bits = upper_bits(prefix.address(), prefix.length());
                family.denied.insert((prefix.length(), bits), denied);
                family.lengths.push(prefix.length());
            }
        }
        for family in &mut lists.families {
            family.lengths.sort_unstable_by(|one, other| other.cmp(one));
            family.lengths.dedup();
        }
        lists
    }

    /// Returns true if the address is denied.
    pub(crate) fn denies(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let family = &self.families[usize::from(ip.is_ipv4())];
        let listed = |&length: &u8| family.denied.get(&(length, upper_bits(ip, length))).copied();
        family.lengths.iter().find_map(listed).unwrap_or(self.others_denied)
    }
}

/// Returns the first `length` bits of an address, left-aligned and padded with zeroes.
fn upper_bits(ip: IpAddr, length: u8) -> u128 {
    let bits = match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    };
    bits & u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefixes(texts: &[&str]) -> Vec<Prefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn lists(allow: &[&str], deny: &[&str]) -> PrefixLists {
        PrefixLists::new(&prefixes(allow), &prefixes(deny))
    }

    fn denied(lists: &PrefixLists, ip: &str) -> bool {
        lists.denies(ip.parse().unwrap())
    }

    #[test]
    fn the_longest_prefix_decides() {
        let lists = lists(&["10.1.0.0/16", "fd00::/8"], &["10.0.0.0/8", "10.1.2.0/24", "::/0"]);
        for (ip, expected) in [
            ("10.0.0.1", true),
            ("10.1.0.1", false),
            ("10.1.2.1", true),
            ("::ffff:10.1.0.1", false),
            ("192.0.2.1", true),
            ("fd00::1", false),
            ("2001:db8::1", true),
        ] {
            assert_eq!(denied(&lists, ip), expected, "{ip}");
        }
    }

    #[test]
    fn without_a_list_of_the_allowed_all_others_are() {
        let lists = lists(&[], &["192.0.2.7/24"]);
        assert!(denied(&lists, "192.0.2.200"), "the bits behind the prefix do not count");
        assert!(!denied(&lists, "192.0.3.1") && !denied(&lists, "fd00::1"));
        assert!(!denied(&PrefixLists::default(), "192.0.2.1"));
    }

    fn any_prefix() -> impl Strategy<Value = Prefix> {
        // Few bits vary, so that prefixes hold one another.
        (any::<bool>(), 0..8_u128, 0..=32_u8).prop_map(|(ipv4, bits, length)| {
            let bits = bits << 125;
            let ip: IpAddr = if ipv4 {
                IpAddr::V4(((bits >> 96) as u32).into())
            } else {
                IpAddr::V6(bits.into())
            };
            Prefix::new(ip, length % 5).unwrap()
        })
    }

    proptest! {
        #[test]
        fn equals_a_search_through_all(allow in prop::collection::vec(any_prefix(), 0..6),
                                        deny in prop::collection::vec(any_prefix(), 0..6),
                                        at in any_prefix()) {
            let ip = at.address();
            prop_assume!(!allow.iter().any(|one| deny.iter().any(|two| one.network() == two.network())));
            let all = allow.iter().map(|p| (p, false)).chain(deny.iter().map(|p| (p, true)));
            let longest = all.filter(|(p, _)| p.contains(ip)).max_by_key(|(p, _)| p.length());
            let expected = longest.map_or(!allow.is_empty(), |(_, denied)| denied);
            prop_assert_eq!(PrefixLists::new(&allow, &deny).denies(ip), expected);
        }
    }
}

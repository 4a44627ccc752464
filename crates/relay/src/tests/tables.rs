//! Tables that can be and tables that cannot, and what stays when one follows another.

use std::sync::Arc;

use proptest::prelude::*;

use crate::control::ControlRequest;
use crate::{
    CHILDREN_MAX, GROUPS_MAX, GroupSpec, RoutingTable, RoutingTableError, RoutingTableFileError,
    RoutingTableSpec,
};

use super::{group, spec};

fn refused(groups: Vec<GroupSpec>) -> RoutingTableError {
    RoutingTable::new(&spec(groups), None).unwrap_err()
}

#[test]
fn invalid_table_is_refused_in_one_line_with_the_location() {
    let at = "192.0.2.1:5000";
    let with = |change: fn(&mut GroupSpec)| {
        let mut one = group("a", at, &["192.0.2.2:5000"]);
        change(&mut one);
        vec![one]
    };
    let cases = [
        (with(|one| one.name = "a b".into()), "invalid group name 'a b'"),
        (with(|one| one.name = "a\nb".into()), "invalid group name 'ab'"),
        (with(|one| one.name = String::new()), "invalid group name ''"),
        (with(|one| one.sources.clear()), "no sources"),
        (with(|one| one.rate = 0), "rate must be at least 1"),
        (with(|one| one.hop_limit = 0), "hop-limit must be"),
        (with(|one| one.interface = Some("eth0".into())), "192.0.2.1' is not one"),
        (vec![group("a", "239.0.0.1:1", &[]); 2], "group name 'a' occurs twice"),
        (vec![group("a", at, &[]), group("b", at, &[])], "'a' and 'b' listen on the same"),
        (vec![group("a", "192.0.2.1:0", &[])], "cannot listen"),
        (vec![group("a", "255.255.255.255:1", &[])], "cannot listen"),
        (vec![group("a", "[::ffff:192.0.2.1]:1", &[])], "cannot listen"),
        (vec![group("a", at, &["192.0.2.2:0"])], "is not a valid child"),
        (vec![group("a", at, &["239.0.0.1:1"])], "is not a valid child"),
        (vec![group("a", at, &["0.0.0.0:1"])], "is not a valid child"),
        (vec![group("a", at, &["[2001:db8::2]:1"])], "the IP version of"),
        (vec![group("a", at, &["203.0.113.1:1"])], "outside the destinations"),
        (vec![group("a", at, &["192.0.2.2:1", "192.0.2.2:1"])], "already"),
        (vec![group("a", at, &[at])], "would be a loop"),
        (
            vec![group("a", at, &["192.0.2.1:6000"]), group("b", "192.0.2.1:6000", &[])],
            "would be a loop",
        ),
    ];
    for (groups, words) in cases {
        let message = refused(groups).to_string();
        assert!(message.contains(words) && !message.contains('\n'), "{message} lacks {words}");
    }
}

#[test]
fn a_full_table_takes_no_more() {
    let listen = |at: usize| format!("192.0.2.1:{}", 2_000 + at);
    let groups =
        |count| (0..count).map(|at| group(&format!("g{at}"), &listen(at), &[])).collect::<Vec<_>>();
    assert!(RoutingTable::new(&spec(groups(GROUPS_MAX)), None).is_ok());
    assert_eq!(refused(groups(GROUPS_MAX + 1)), RoutingTableError::TooManyGroups(GROUPS_MAX + 1));
    let children = |count: usize| {
        let children: Vec<String> = (0..count).map(|at| format!("192.0.2.2:{}", 1 + at)).collect();
        let children: Vec<&str> = children.iter().map(String::as_str).collect();
        vec![group("a", "192.0.2.1:1", &children)]
    };
    assert!(RoutingTable::new(&spec(children(CHILDREN_MAX)), None).is_ok());
    assert_eq!(
        refused(children(CHILDREN_MAX + 1)),
        RoutingTableError::TooManyChildren(CHILDREN_MAX + 1)
    );
}

#[test]
fn remaining_members_retain_counters_and_indices() {
    let wanted = spec(vec![
        group("a", "192.0.2.1:1", &["192.0.2.2:1"]),
        group("b", "192.0.2.1:2", &["192.0.2.2:2", "192.0.2.2:3"]),
    ]);
    let before = RoutingTable::new(&wanted, None).unwrap();
    before.groups()[1].children[1].counters.count_sent(10);
    let mut spec = before.spec();
    for request in [
        ControlRequest::RemoveGroup { group: "a".into() },
        ControlRequest::RemoveChildren {
            group: "b".into(),
            children: vec!["192.0.2.2:2".parse().unwrap()],
        },
        ControlRequest::AddGroup { group: group("c", "192.0.2.1:1", &["192.0.2.2:9"]) },
    ] {
        request.edit(&mut spec).unwrap();
    }
    let after = RoutingTable::new(&spec, Some(&before)).unwrap();
    let [b, c] = after.groups() else { panic!("{after:?}") };
    assert!(Arc::ptr_eq(&b.counters, &before.groups()[1].counters));
    assert!(Arc::ptr_eq(&b.children[0], &before.groups()[1].children[1]));
    assert_eq!(b.index, before.groups()[1].index);
    assert_ne!(b.index, c.index);
    assert_eq!(c.counters.counts().packets + c.children[0].counters.counts().packets, 0);
    let gone = ControlRequest::RemoveGroup { group: "a".into() }.edit(&mut spec).unwrap_err();
    assert_eq!(gone, RoutingTableError::NoGroup("a".into()));
}

#[test]
fn a_malformed_file_is_refused_by_its_line() {
    let group = "[[group]]\nname = 'a'\nlisten = '192.0.2.1:1'\nsources = []";
    for (text, line, words) in [
        ("[[group]]\nname = 'a'\n", 1, "listen"),
        ("\ndestination = []", 2, "unknown field"),
        ("copy-rate = -1", 1, "`-1`, expected a whole number of at least 1"),
        ("\ncopy-rate = 'all'", 2, "expected a whole number of at least 1"),
        (&format!("{group}\nhop-limit = 256"), 5, "`256`, expected a whole number from 1 to 255"),
        (
            &format!("{group}\nchildren = ['x:1']"),
            5,
            "an address and a port, such as 192.0.2.1:5000",
        ),
        ("[[group]]\nname = 'a'\nlisten = 'here'", 3, "\"here\", expected an address and a port"),
        ("destinations = ['192.0.2.0/33']", 1, "too long"),
        ("\n\n[[group", 3, ""),
    ] {
        let RoutingTableFileError { line: at, reason } = RoutingTableSpec::parse(text).unwrap_err();
        assert!(at == line && reason.contains(words), "{text:?}: line {at}: {reason}");
        assert!(!reason.contains('\n') && !reason.is_empty());
    }
    assert_eq!(RoutingTableSpec::parse("").unwrap().groups, []);
}

fn a_network() -> impl Strategy<Value = String> {
    prop_oneof![
        (any::<std::net::Ipv4Addr>(), 0..=32).prop_map(|(ip, length)| format!("{ip}/{length}")),
        (any::<std::net::Ipv6Addr>(), 0..=128).prop_map(|(ip, length)| format!("{ip}/{length}")),
    ]
}

prop_compose! {
    fn a_group()(
        name in "[a-z0-9._-]{1,12}",
        listen: std::net::SocketAddr,
        interface in proptest::option::of("[a-z0-9]{1,15}"),
        sources in proptest::collection::vec(a_network(), 0..4),
        rate in 0..=i64::MAX as u64,
        hop_limit: u8,
        fragment: bool,
        children in proptest::collection::vec(any::<std::net::SocketAddr>(), 0..5),
    ) -> GroupSpec {
        // Scope and flow of an IPv6 address are not part of an end's name, so a link-local address,
        // which requires its scope, is not generated.
        let plain = |at: std::net::SocketAddr| match at.ip() {
            std::net::IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                (std::net::Ipv6Addr::LOCALHOST, at.port()).into()
            }
            ip => std::net::SocketAddr::new(ip, at.port()),
        };
        GroupSpec {
            name,
            listen: plain(listen),
            interface,
            sources: sources.iter().map(|text| text.parse().unwrap()).collect(),
            rate,
            hop_limit,
            fragment,
            children: children.into_iter().map(plain).collect(),
        }
    }
}

prop_compose! {
    fn a_spec()(
        destinations in proptest::collection::vec(a_network(), 0..4),
        copy_rate in 0..=i64::MAX as u64,
        groups in proptest::collection::vec(a_group(), 0..4),
    ) -> RoutingTableSpec {
        let destinations = destinations.iter().map(|text| text.parse().unwrap()).collect();
        RoutingTableSpec { destinations, copy_rate, groups }
    }
}

proptest! {
    #[test]
    fn a_file_is_read_as_it_was_written(spec in a_spec()) {
        prop_assert_eq!(RoutingTableSpec::parse(&spec.to_toml()), Ok(spec.clone()));
        if let Ok(table) = RoutingTable::new(&spec, None) {
            prop_assert_eq!(table.spec(), spec);
        }
    }

    #[test]
    fn a_request_is_read_as_it_was_written(group in a_group()) {
        let request = ControlRequest::AddGroup { group };
        prop_assert_eq!(ControlRequest::parse(request.to_line().as_bytes()), Ok(request));
    }

    #[test]
    fn no_text_upsets_the_parsers(text in "\\PC{0,80}") {
        if let Err(fault) = RoutingTableSpec::parse(&text) {
            prop_assert!(!fault.to_string().contains('\n'));
        }
        if let Err(reason) = ControlRequest::parse(text.as_bytes()) {
            prop_assert!(!reason.contains('\n'));
        }
    }
}

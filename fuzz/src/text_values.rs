//! Arbitrary text as a value on the command line or in a file: a target, a network, a MAC address,
//! a rate, a size, a time, a master secret. Parsing never panics, and a parsed value is unchanged
//! after it was written and parsed again, except a secret, which is never written. No target is
//! looked up by name, and a network of simulated clients contains only permitted addresses.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use horolog_load::clients::SimulatedClientNetwork;
use horolog_load::target::{TargetName, check_permitted};
use horolog_nts::CookieMasterSecret;
use horolog_time::Span;
use horolog_time::text::{Rate, Size, numbers, sizes};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::prefix::Prefix;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    target(text);
    prefix(text);
    if let Err(error) = CookieMasterSecret::parse(text) {
        assert!(!error.to_string().contains('\n'));
    }
    if let Ok(address) = text.parse::<MacAddress>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
    if let Ok(rate) = text.parse::<Rate>() {
        assert_eq!(rate.to_string().parse(), Ok(rate));
    }
    if let Ok(size) = text.parse::<Size>() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
    let _ = (text.parse::<Span>(), sizes(text), numbers(text));
});

fn target(text: &str) {
    let Ok(target) = text.parse::<TargetName>() else { return };
    let again: TargetName = target.to_string().parse().expect("a written target is readable");
    if target.name().is_some() {
        assert_eq!((again.name(), again.port()), (target.name(), target.port()));
        return;
    }
    let Ok(address) = target.resolve(None, Some("lo")) else {
        // A zone may name an interface that this host lacks.
        assert!(text.contains('%'), "cannot resolve the literal address {text}");
        return;
    };
    assert_ne!(address.port(), 0);
    assert_eq!(again.resolve(None, Some("lo")).ok(), Some(address));
    let _ = check_permitted(address.ip(), false);
}

fn prefix(text: &str) {
    let Ok(prefix) = text.parse::<Prefix>() else { return };
    assert_eq!(prefix.to_string().parse(), Ok(prefix));
    assert!(prefix.contains(prefix.address()));
    assert_eq!(prefix.network().network(), prefix.network());
    let outside = match prefix.address() {
        IpAddr::V4(_) => Ipv4Addr::BROADCAST.into(),
        IpAddr::V6(_) => Ipv6Addr::from_bits(u128::MAX).into(),
    };
    let Ok(network) = SimulatedClientNetwork::new(prefix, outside, &[]) else { return };
    for client in (0..network.host_count()).take(1).chain(network.host_count().checked_sub(1)) {
        let address = network.address(client);
        assert!(check_permitted(address, false).is_ok(), "{address} is not permitted");
        assert!(prefix.contains(address));
        assert_eq!(network.client_of(address), Some(client));
    }
}

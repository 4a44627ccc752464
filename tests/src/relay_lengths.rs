//! Scenarios of `horolog relay` with datagrams of all lengths, including those sent in fragments.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};

use crate::relay::{PORT, Relay, address, bind, check_no_copy, table};
use crate::scenario::Scenario;
use crate::{ROOT_AND_IPV6, relay_lengths, scenarios};

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(ROOT_AND_IPV6, relay_lengths: datagrams_of_any_length_arrive_whole))
}

/// Datagrams up to the longest of each IP version arrive, with every engine; a group that must not
/// fragment drops those that exceed the MTU of the child's route.
fn datagrams_of_any_length_arrive_whole() -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 3, ipv6: true, ..LabConfig::default() })?;
    for (ipv6, fits, longest) in [(false, 1_472, 65_507), (true, 1_452, 65_487)] {
        for engine in ["send", "sendmmsg", "xdp"] {
            let context = || format!("{engine}, IPv6 {ipv6}");
            check_lengths(&lab, ipv6, engine, [fits, longest]).with_context(context)?;
        }
    }
    Ok(())
}

fn check_lengths(lab: &Lab, ipv6: bool, engine: &str, [fits, longest]: [usize; 2]) -> Result<()> {
    let port = &lab.client().interfaces[0];
    let near: IpAddr = if ipv6 { port.ipv6.context("no IPv6")?.into() } else { port.ipv4.into() };
    let (at, whole) = (SocketAddr::new(near, PORT), SocketAddr::new(near, PORT + 1));
    let child = SocketAddr::new(address(lab.host(2), ipv6)?, PORT);
    let receiver = bind(lab.host(2), child)?;
    let source = bind(lab.server(), SocketAddr::new(address(lab.server(), ipv6)?, 0))?;
    let relay = Relay::start(lab.client(), &table(at, &[child]), &["--engine", engine])?;
    let (listen, net) = (whole.to_string(), source.local_addr()?.ip().to_string());
    let other = child.to_string();
    let group = ["add", "whole", "--listen", &listen, "--source", &net, &other];
    relay.control(&[&group[..], &["--no-fragment"]].concat())?;
    for length in [0, 1, fits - 1, fits, fits + 1, 9_000, longest] {
        let (sent, mut received) = (vec![length as u8; length], vec![0; 65_536]);
        source.send_to(&sent, at)?;
        let got = receiver.recv(&mut received).with_context(|| format!("{length} bytes"))?;
        ensure!(received[..got] == sent, "{got} bytes of {length}");
        source.send_to(&sent, whole)?;
        if length <= fits {
            ensure!(receiver.recv(&mut received)? == length, "not {length} bytes unfragmented");
        }
    }
    check_no_copy(&receiver)?;
    let listing = relay.listing()?;
    let of = |group: usize| &listing.groups[group].children[0];
    ensure!((of(0).packets, of(0).dropped.len()) == (7, 0), "{listing:?}");
    ensure!(of(1).dropped == [("too-large".to_owned(), 3)].into(), "{listing:?}");
    let toml = relay.control(&["list", "--toml"])?;
    ensure!(toml.contains("fragment = true") && toml.contains("fragment = false"), "{toml}");
    Ok(())
}

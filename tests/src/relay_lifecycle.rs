//! Scenarios of changes around a running relay: recreated interfaces, programs that occupy one for
//! a time, tables with other addresses or higher rates, and slow changes.

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, LabInterface};
use horolog_relay::RoutingTableSpec;
use horolog_sys::netlink::{Netlink, VethEndConfig, VethPairConfig};
use horolog_wire::prefix::Prefix;

use crate::process::{TIMEOUT, binary, run_to_end, signal_to, wait_until};
use crate::relay::{
    GROUP, PORT, QUIET_PERIOD, Relay, address, bind, check_no_copy, receive_number, send, table,
};
use crate::scenario::{Scenario, scenario};
use crate::{ROOT, relay_lifecycle, scenarios};

const CHILD_PORT: u16 = 6_000;
/// Link-local IPv6 multicast group.
const LINK_GROUP: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x1234);
/// Timeout of a change of many groups.
const CHANGE_TIMEOUT: Duration = Duration::from_mins(1);
/// Time after which a relay has detected that an interface has changed.
const DETECTION_TIME: Duration = Duration::from_millis(1_500);

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    for engine in ["sendmmsg", "xdp"] {
        let name = |what: &str| format!("relay_lifecycle::{what}::{engine}");
        let run = move || a_raised_rate_applies_at_once(engine);
        all.push(scenario(name("a_raised_rate_applies_at_once"), ROOT, run));
        let run = move || addresses_of_a_group_are_added_and_removed(engine);
        all.push(scenario(name("addresses_of_a_group_are_added_and_removed"), ROOT, run));
    }
    all.extend(scenarios!(ROOT, relay_lifecycle:
        an_occupied_interface_is_retried,
        a_listing_does_not_wait_for_a_change,
        a_command_waits_for_a_slow_change,
    ));
    for ipv6 in [false, true] {
        let name = if ipv6 { "of_the_link" } else { "of_ipv4" };
        let run = move || a_group_is_joined_again(ipv6);
        all.push(scenario(format!("relay_lifecycle::a_group_is_joined_again::{name}"), ROOT, run));
    }
    all
}

/// Replaces the table file of a relay, and waits until it is applied.
fn reload(relay: &Relay, table: &str) -> Result<()> {
    fs::write(relay.directory.path().join("table.toml"), table)?;
    let wanted = RoutingTableSpec::parse(table)?;
    signal_to(relay.running.pid(), "HUP")?;
    wait_until("the table is read", || Ok(relay.listing()?.table == wanted))
        .with_context(|| format!("not reloaded: {table}"))?;
    // The listing shows a table before the BPF programs have it; this response comes after them.
    let mut command = Command::new(binary()?);
    command.args(["relay", "remove", "g", "203.0.113.1:9", "--socket"]).arg(relay.socket());
    run_to_end(&mut command, CHANGE_TIMEOUT).map(drop)
}

/// Checks that exactly these packets arrive, in order.
fn check_arrival(socket: &UdpSocket, numbers: std::ops::Range<u32>) -> Result<()> {
    for expected in numbers {
        let received = receive_number(socket)?;
        ensure!(received == expected, "received {received} instead of {expected}");
    }
    check_no_copy(socket)
}

/// Deletes and recreates a link, so that its interfaces have other indexes.
fn recreate_link(near: &LabHost, far: &LabHost) -> Result<()> {
    let (one, other) = (&near.interfaces[0], far.first_interface());
    near.netlink()?.delete_link(one.index)?;
    thread::sleep(DETECTION_TIME);
    let end = |name: &str, mac| VethEndConfig { name: name.to_owned(), mac: Some(mac) };
    near.netlink()?.create_veth(&VethPairConfig {
        local: end(&one.name, one.mac),
        peer: end(&other.name, other.mac),
        peer_namespace: far.netns.as_fd(),
        queues: 1,
    })?;
    let set_up = |mut netlink: Netlink, port: &LabInterface| -> Result<u32> {
        let index = netlink.link_by_name(&port.name)?.index;
        netlink.set_link_up(index)?;
        netlink.add_address(index, Prefix::new(port.ipv4.into(), 30)?)?;
        if let Some(ipv6) = port.ipv6 {
            netlink.add_address(index, Prefix::new(ipv6.into(), 64)?)?;
        }
        Ok(index)
    };
    let index = set_up(near.netlink()?, one)?;
    ensure!(index != one.index, "the index did not change");
    set_up(far.netlink()?, other)?;
    Ok(())
}

/// Routes packets to multicast groups through the only link of a host.
fn route_groups(host: &LabHost) -> Result<()> {
    let index = host.netlink()?.link_by_name(&host.first_interface().name)?.index;
    let groups = Prefix::new(Ipv4Addr::new(224, 0, 0, 0).into(), 4)?;
    Ok(host.netlink()?.add_route(groups, None, index)?)
}

fn a_group_is_joined_again(ipv6: bool) -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 3, ipv6, ..LabConfig::default() })?;
    let (host, far) = (lab.client(), lab.server());
    let listen = if ipv6 { IpAddr::from(LINK_GROUP) } else { GROUP.into() };
    let child = SocketAddr::new(address(far, ipv6)?, CHILD_PORT);
    let other_at = SocketAddr::from((host.interfaces[1].ipv4, PORT));
    let other_child = SocketAddr::new(address(lab.host(2), false)?, CHILD_PORT);
    let on = format!("interface = \"{}\"\nsources", host.interfaces[0].name);
    let mut text = table((listen, PORT), &[child]).replace("sources", &on);
    let sources = "sources = [\"192.0.2.0/24\"]";
    write!(
        text,
        "[[group]]\nname = \"h\"\nlisten = \"{other_at}\"\n{sources}\nchildren = [\"{other_child}\"]\n"
    )?;
    let relay = Relay::start(host, &text, &["--engine", "sendmmsg"])?;
    let exchange = |numbers: std::ops::Range<u32>| -> Result<()> {
        if !ipv6 {
            route_groups(far)?;
        }
        let (source, receiver) = (bind(far, SocketAddr::new(child.ip(), 0))?, bind(far, child)?);
        let index = far.netlink()?.link_by_name(&far.first_interface().name)?.index;
        let to = match listen {
            IpAddr::V4(_) => SocketAddr::new(listen, PORT),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, PORT, 0, index).into(),
        };
        send(&source, to, numbers.clone(), 2_000)?;
        check_arrival(&receiver, numbers)
    };
    exchange(0..100)?;
    let other = bind(lab.host(2), other_child)?;
    let source = bind(lab.host(2), SocketAddr::new(other_child.ip(), 0))?;
    thread::scope(|scope| -> Result<()> {
        // The other group receives each of its packets once meanwhile.
        let sending = scope.spawn(|| send(&source, other_at, 0..8_000, 1_500));
        let receiving = scope.spawn(|| check_arrival(&other, 0..8_000));
        let gone = || Ok(relay.listing()?.groups[0].interface_missing);
        let remade = scope.spawn(|| recreate_link(host, far));
        wait_until("the missing interface is reported", gone)?;
        remade.join().ok().context("recreating the link panicked")??;
        wait_until("the group is joined again", || Ok(!gone()?))?;
        sending.join().ok().context("the source panicked")??;
        receiving.join().ok().context("the receiver panicked")?
    })?;
    exchange(100..200)?;
    ensure!(relay.listing()?.changes_refused == 0);
    Ok(())
}

/// An interface has one XDP program: a relay uses an occupied interface once the other relay ends.
fn an_occupied_interface_is_retried() -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    let host = lab.client();
    let child = SocketAddr::new(address(lab.host(2), false)?, CHILD_PORT);
    let start = |port: u16| {
        let at = SocketAddr::from((host.interfaces[0].ipv4, port));
        Relay::start(host, &table(at, &[child]), &["--engine", "auto"])
    };
    let engine = |relay: &Relay| anyhow::Ok(relay.listing()?.groups.remove(0).engine);
    for by_a_change in [true, false] {
        let first = start(PORT)?;
        ensure!(engine(&first)? == "xdp", "{:?}", first.listing()?);
        let second = start(PORT + 1)?;
        ensure!(engine(&second)? == "sendmmsg", "{:?}", second.listing()?);
        drop(first);
        if by_a_change {
            thread::sleep(QUIET_PERIOD);
            second.control(&["add", "g", &SocketAddr::new(child.ip(), 7_000).to_string()])?;
            ensure!(engine(&second)? == "xdp", "{:?}", second.listing()?);
        } else {
            // The relay retries every ten seconds.
            thread::sleep(Duration::from_secs(5));
            wait_until("XDP is used", || Ok(engine(&second)? == "xdp"))
                .with_context(|| format!("{:?}", second.listing()))?;
        }
    }
    Ok(())
}

fn a_raised_rate_applies_at_once(engine: &str) -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    let at = SocketAddr::from((lab.client().interfaces[0].ipv4, PORT));
    let child = SocketAddr::new(address(lab.host(2), false)?, CHILD_PORT);
    let receiver = bind(lab.host(2), child)?;
    let source = bind(lab.server(), SocketAddr::new(address(lab.server(), false)?, 0))?;
    let fast = table(at, &[child]);
    for (slow, reason) in [("copy-rate", "copy-rate"), ("\nrate", "rate")] {
        let from = if slow == "copy-rate" { "copy-rate = 10000000" } else { "\nrate = 1000000" };
        let text = fast.replace(from, &format!("{slow} = 1"));
        ensure!(text != fast);
        let relay = Relay::start(lab.client(), &text, &["--engine", engine])?;
        ensure!(relay.listing()?.groups[0].engine == engine, "{:?}", relay.listing()?);
        send(&source, at, 0..1_200, 5_000)?;
        thread::sleep(QUIET_PERIOD);
        let refused = relay.listing()?.groups[0].refused.get(reason).copied();
        ensure!(refused > Some(100), "{refused:?} refused by {reason}");
        receiver.set_nonblocking(true)?;
        while receiver.recv(&mut [0; 2_048]).is_ok() {}
        receiver.set_nonblocking(false)?;
        receiver.set_read_timeout(Some(TIMEOUT))?;
        reload(&relay, &fast)?;
        send(&source, at, 2_000..2_200, 5_000)?;
        check_arrival(&receiver, 2_000..2_200).with_context(|| format!("{:?}", relay.listing()))?;
        receiver.set_read_timeout(Some(TIMEOUT))?;
    }
    Ok(())
}

/// A group changes from all addresses to one of them and back, at one port; and both are served at
/// once, as two groups.
fn addresses_of_a_group_are_added_and_removed(engine: &str) -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 4, ..LabConfig::default() })?;
    let ports = &lab.client().interfaces;
    let [one, two] = [0, 1].map(|port: usize| SocketAddr::from((ports[port].ipv4, PORT)));
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let child = |port| anyhow::Ok(SocketAddr::new(address(lab.host(3), false)?, port));
    let children = [child(CHILD_PORT)?, child(CHILD_PORT + 1)?];
    let receivers = [bind(lab.host(3), children[0])?, bind(lab.host(3), children[1])?];
    let sources = [
        bind(lab.host(1), SocketAddr::new(address(lab.host(1), false)?, 0))?,
        bind(lab.host(2), SocketAddr::new(address(lab.host(2), false)?, 0))?,
    ];
    let relay = Relay::start(lab.client(), &table(any, &children[..1]), &["--engine", engine])?;
    let both = || {
        let group = table(any, &children[..1]);
        let group = &group[group.find("[[group]]").unwrap_or_default()..];
        table(one, &children[1..]).replace("name = \"g\"", "name = \"h\"") + group
    };
    let (narrow, wide) = (table(one, &children[..1]), table(any, &children[..1]));
    let mut first = 0;
    for (text, by) in [
        (&wide, [Some(0), Some(0)]),
        (&narrow, [Some(0), None]),
        (&wide, [Some(0), Some(0)]),
        (&both(), [Some(1), Some(0)]),
        (&narrow, [Some(0), None]),
    ] {
        reload(&relay, text)?;
        let listing = relay.listing()?;
        ensure!(listing.groups.iter().all(|group| group.engine == engine), "{listing:?}");
        for ((at, source), to) in [one, two].into_iter().zip(&sources).zip(by) {
            let numbers = first..first + 50;
            send(source, at, numbers.clone(), 5_000)?;
            for (index, receiver) in receivers.iter().enumerate() {
                receiver.set_read_timeout(Some(TIMEOUT))?;
                let numbers = if to == Some(index) { numbers.clone() } else { 0..0 };
                check_arrival(receiver, numbers).with_context(|| format!("{at} by {text}"))?;
            }
            first += 50;
        }
    }
    ensure!(relay.listing()?.changes_refused == 5, "changes refused beside those of `reload`");
    Ok(())
}

/// A change of many groups takes seconds in the BPF programs; listings are answered meanwhile.
fn a_listing_does_not_wait_for_a_change() -> Result<()> {
    const GROUPS: u16 = 256;
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    let near = lab.client().interfaces[0].ipv4;
    let far = address(lab.host(2), false)?;
    let of_rate = |rate: u32| -> Result<String> {
        let mut text = "destinations = [\"192.0.2.0/24\"]\n".to_owned();
        for number in 0..GROUPS {
            write!(
                text,
                "[[group]]\nname = \"g{number}\"\nlisten = \"{near}:{}\"\nrate = {rate}\n\
                 sources = [\"192.0.2.0/24\"]\nchildren = [\"{far}:{}\"]\n",
                2_000 + number,
                3_000 + number
            )?;
        }
        Ok(text)
    };
    let relay = Relay::start(lab.client(), &of_rate(1_000)?, &["--engine", "xdp"])?;
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let changing = scope.spawn(|| -> Result<Duration> {
            reload(&relay, &of_rate(2_000)?)?;
            Ok(begun.elapsed())
        });
        let mut longest = Duration::ZERO;
        while !changing.is_finished() {
            let requested_at = Instant::now();
            relay.listing()?;
            longest = longest.max(requested_at.elapsed());
        }
        let took = changing.join().ok().context("the change panicked")??;
        ensure!(took > Duration::from_secs(1), "the change was too fast to measure: {took:?}");
        ensure!(longest < took / 3, "{longest:?} of {took:?}");
        Ok(())
    })?;
    let listing = relay.listing()?;
    let odd = listing.groups.iter().find(|group| group.engine != "xdp");
    ensure!(odd.is_none(), "{odd:?}");
    Ok(())
}

/// A command waits for its change while the relay is stopped for longer than the usual timeout.
fn a_command_waits_for_a_slow_change() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = SocketAddr::from((lab.client().first_interface().ipv4, PORT));
    let child = |port| anyhow::Ok(SocketAddr::new(address(lab.server(), false)?, port));
    let relay = Relay::start(lab.client(), &table(at, &[child(1)?]), &["--engine", "send"])?;
    signal_to(relay.running.pid(), "STOP")?;
    thread::scope(|scope| -> Result<()> {
        let adding = scope.spawn(|| -> Result<_> {
            let mut command = Command::new(binary()?);
            command.args(["relay", "add", "g", &child(2)?.to_string(), "--socket"]);
            run_to_end(command.arg(relay.socket()), 2 * TIMEOUT)
        });
        thread::sleep(Duration::from_secs(12));
        signal_to(relay.running.pid(), "CONT")?;
        let output = adding.join().ok().context("the command panicked")??;
        ensure!(output.status.success(), "{output:?}");
        Ok(())
    })?;
    ensure!(relay.listing()?.table.groups[0].children.len() == 2);
    Ok(())
}

//! Scenarios of `horolog relay` whose copies the kernel makes: packets of a program on the same
//! host are sent once; interfaces are removed and recreated; neighbours change; some groups need
//! sockets; and a killed relay leaves nothing attached.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use horolog_sys::socket::DatagramSocket;
use horolog_wire::prefix::Prefix;
use tempfile::TempDir;

use crate::isolation::check_nothing_attached;
use crate::process::{TIMEOUT, binary, run_to_end, signal_to, wait_until};
use crate::relay::{
    GROUP, PORT, QUIET_PERIOD, Relay, address, bind, check_no_copy, payload, receive_number, send,
    table,
};
use crate::scenario::{Need, Scenario, scenario};
use crate::{ROOT, ROOT_AND_IPV6, relay_xdp, scenarios};

const SETPRIV: &[Need] = &[Need::Root, Need::Peer("setpriv")];
/// Time after which a relay has detected that a route or an interface has changed.
const DETECTION_TIME: Duration = Duration::from_millis(1_500);

/// Transient IPv6 multicast group of global scope (RFC 4291, section 2.7).
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff1e, 0, 0, 0, 0, 0, 0, 5);

/// Scenario of one engine.
type WithEngine = fn(&str) -> Result<()>;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, relay_xdp:
        an_interface_is_used_again_after_it_was_down,
        an_interface_is_used_again_after_it_was_removed,
        a_neighbour_may_have_another_mac_address,
        a_killed_relay_leaves_no_program,
        a_send_interface_may_be_deleted,
        a_rate_limit_covers_both_engines,
        groups_that_need_sockets_are_reported,
    ));
    all.extend(scenarios!(SETPRIV, relay_xdp: without_privileges_sockets_copy));
    let each: [(&str, WithEngine); 3] = [
        ("a_program_on_this_host_sends_once", |engine| {
            packets_of_a_local_program_are_sent_once(engine, false)
        }),
        ("a_broadcast_address_gets_nothing", a_broadcast_address_gets_nothing),
        ("no_copy_is_longer_than_its_route_allows", no_copy_is_longer_than_its_route_allows),
    ];
    for engine in ["sendmmsg", "xdp"] {
        let name = format!("relay_xdp::a_program_on_this_host_sends_once_over_ipv6::{engine}");
        let run = move || packets_of_a_local_program_are_sent_once(engine, true);
        all.push(scenario(name, ROOT_AND_IPV6, run));
    }
    for (name, run) in each {
        for engine in ["sendmmsg", "xdp"] {
            let run = move || run(engine);
            all.push(scenario(format!("relay_xdp::{name}::{engine}"), ROOT, run));
        }
    }
    all
}

/// Relay with a child on each of two hosts, and a source.
struct TwoChildren {
    lab: Lab,
    relay: Relay,
    at: SocketAddr,
    children: [SocketAddr; 2],
    sockets: [UdpSocket; 2],
    source: UdpSocket,
}

impl TwoChildren {
    fn new(arguments: &[&str]) -> Result<Self> {
        let lab = Lab::new(&LabConfig { hosts: 4, ..LabConfig::default() })?;
        let at = SocketAddr::from((lab.client().interfaces[0].ipv4, PORT));
        let socket_address =
            |host| anyhow::Ok(SocketAddr::new(address(lab.host(host), false)?, PORT));
        let children = [socket_address(2)?, socket_address(3)?];
        let sockets = [bind(lab.host(2), children[0])?, bind(lab.host(3), children[1])?];
        let relay = Relay::start(lab.client(), &table(at, &children), arguments)?;
        let source = bind(lab.server(), SocketAddr::new(address(lab.server(), false)?, 0))?;
        Ok(Self { lab, relay, at, children, sockets, source })
    }

    /// Sends numbered packets, and checks that these children receive them.
    fn exchange(&self, numbers: std::ops::Range<u32>, get: &[usize]) -> Result<()> {
        send(&self.source, self.at, numbers.clone(), 5_000)?;
        for child in get {
            for expected in numbers.clone() {
                let received = receive_number(&self.sockets[*child]).with_context(|| {
                    format!("child {child}, packet {expected}: {:?}", self.relay.listing())
                })?;
                ensure!(received == expected, "received {received} instead of {expected}");
            }
        }
        Ok(())
    }

    fn check_in_kernel(&self) -> Result<()> {
        let listing = self.relay.listing()?;
        ensure!(listing.groups[0].engine == "xdp", "{listing:?}");
        Ok(())
    }
}

fn an_interface_is_used_again_after_it_was_down() -> Result<()> {
    let two = TwoChildren::new(&["--engine", "xdp"])?;
    let far = two.lab.client().interfaces[2].index;
    two.check_in_kernel()?;
    two.exchange(0..100, &[0, 1])?;
    two.lab.client().netlink()?.set_link_down(far)?;
    thread::sleep(DETECTION_TIME);
    two.exchange(100..200, &[0])?;
    two.check_in_kernel()?;
    let child = two.relay.child(two.children[1])?;
    ensure!(child.packets == 100 && child.dropped.get("unreachable") == Some(&100), "{child:?}");
    two.lab.client().netlink()?.set_link_up(far)?;
    thread::sleep(DETECTION_TIME);
    two.exchange(200..300, &[0, 1])?;
    let child = two.relay.child(two.children[1])?;
    ensure!(child.packets == 200, "{child:?}");
    Ok(())
}

/// An interface moves to another network namespace and back before the relay checks it again, with
/// the same index and name.
fn an_interface_is_used_again_after_it_was_removed() -> Result<()> {
    const TIMES: u32 = 3;
    let two = TwoChildren::new(&["--engine", "xdp"])?;
    let (host, away) = (two.lab.client(), two.lab.server());
    let [here, there] =
        [host, away].map(|host| host.run(|| File::open("/proc/thread-self/ns/net")));
    let (here, there) = (here??, there??);
    let port = &host.interfaces[2];
    let network = Prefix::new(port.ipv4.into(), 30)?;
    for number in 0..TIMES {
        let begin = 200 * number;
        two.exchange(begin..begin + 100, &[0, 1])?;
        let (mut of_host, mut of_away) = (host.netlink()?, away.netlink()?);
        of_host.move_link(port.index, there.as_fd())?;
        let index = of_away.link_by_name(&port.name)?.index;
        of_away.move_link(index, here.as_fd())?;
        ensure!(of_host.link_by_name(&port.name)?.index == port.index, "another index");
        of_host.add_address(port.index, network)?;
        of_host.set_link_up(port.index)?;
        thread::sleep(DETECTION_TIME);
        two.check_in_kernel()?;
        two.exchange(begin + 100..begin + 200, &[0, 1])?;
    }
    Ok(())
}

fn a_neighbour_may_have_another_mac_address() -> Result<()> {
    let two = TwoChildren::new(&["--engine", "xdp"])?;
    two.exchange(0..100, &[0, 1])?;
    let (near, far) = (&two.lab.client().interfaces[2], two.lab.host(3).first_interface());
    let mut mac = far.mac;
    mac[5] ^= 0x55;
    two.lab.host(3).netlink()?.set_link_mac(far.index, mac)?;
    // As if the kernel had detected that its entry is outdated.
    let gone = two
        .lab
        .client()
        .command("ip")
        .args(["neigh", "del", &far.ipv4.to_string(), "dev", &near.name])
        .output()?;
    ensure!(gone.status.success(), "{gone:?}");
    thread::sleep(DETECTION_TIME);
    two.exchange(100..200, &[0, 1])?;
    two.check_in_kernel()
}

fn a_killed_relay_leaves_no_program() -> Result<()> {
    let two = TwoChildren::new(&["--engine", "xdp", "--send-interface", "relay0"])?;
    two.exchange(0..10, &[0, 1])?;
    let host = two.lab.client();
    ensure!(check_nothing_attached(host).is_err(), "no program was attached");
    ensure!(host.netlink()?.link_by_name("relay0").is_ok());
    signal_to(two.relay.running.pid(), "KILL")?;
    let begun = Instant::now();
    while let Err(left) = check_nothing_attached(host) {
        ensure!(begun.elapsed() < TIMEOUT, "{left:#}");
        thread::sleep(Duration::from_millis(5));
    }
    ensure!(host.netlink()?.link_by_name("relay0").is_err(), "the send interface remains");
    send(&two.source, two.at, 0..10, 5_000)?;
    check_no_copy(&two.sockets[0])
}

/// The relay reports the deletion of its send interface, continues, and stops reading from it.
fn a_send_interface_may_be_deleted() -> Result<()> {
    let two = TwoChildren::new(&["--send-interface", "relay0"])?;
    let host = two.lab.client();
    ensure!(two.relay.listing()?.send_interface.as_deref() == Some("relay0"));
    let gone = host.command("ip").args(["link", "delete", "relay0"]).output()?;
    ensure!(gone.status.success(), "{gone:?}");
    wait_until("the interface is found missing", || {
        Ok(two.relay.listing()?.send_interface.is_none())
    })?;
    let errors = two.relay.listing()?.receive_errors;
    thread::sleep(QUIET_PERIOD);
    ensure!(two.relay.listing()?.receive_errors == errors, "the relay reads from it still");
    two.exchange(0..10, &[0, 1])
}

/// Packets copied by the kernel and packets copied by sockets count towards one rate.
fn a_rate_limit_covers_both_engines() -> Result<()> {
    const RATE: u32 = 200;
    const EACH: u32 = 100;
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    let at = SocketAddr::from((lab.client().interfaces[0].ipv4, PORT));
    let child = SocketAddr::new(address(lab.host(2), false)?, PORT);
    let table = table(at, &[child]).replace("rate = 1000000\n", &format!("rate = {RATE}\n"));
    let relay = Relay::start(lab.client(), &table, &["--engine", "xdp", "--no-fragment"])?;
    let source = bind(lab.server(), any_port_of(lab.server())?)?;
    let begun = Instant::now();
    // Fragmented packets, which sockets receive reassembled.
    (0..EACH).try_for_each(|_| source.send_to(&[1; 2_000], at).map(drop))?;
    thread::sleep(Duration::from_millis(20));
    (0..EACH).try_for_each(|number| source.send_to(&payload(number), at).map(drop))?;
    let took = begun.elapsed();
    thread::sleep(QUIET_PERIOD);
    let group = &relay.listing()?.groups[0];
    let refused = group.refused.get("rate").copied().unwrap_or(0);
    ensure!(group.packets == u64::from(2 * EACH), "{group:?}");
    let admitted = group.packets - refused;
    let allowed = 2.0 + f64::from(RATE) * (0.1 + took.as_secs_f64());
    ensure!(admitted >= 20 && (admitted as f64) < allowed, "{admitted} of {allowed}: {group:?}");
    let too_large = relay.child(child)?.dropped.get("too-large").copied();
    ensure!(too_large >= Some(15), "{too_large:?} fragmented packets too large: {group:?}");
    let before = relay.child(child)?.packets;
    source.send_to(&payload(0), at)?;
    thread::sleep(QUIET_PERIOD);
    ensure!(relay.child(child)?.packets == before + 1);
    Ok(())
}

/// Groups that only sockets can serve are refused if XDP is required, and reported otherwise.
fn groups_that_need_sockets_are_reported() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let host = lab.client();
    let child = SocketAddr::new(address(lab.server(), false)?, PORT);
    let loopback = table((Ipv4Addr::LOCALHOST, PORT), &[child]);
    let at = SocketAddr::from((host.first_interface().ipv4, PORT));
    for (table, arguments, words) in [
        (&loopback, &["--engine", "xdp"][..], "arrive on no interface"),
        (&table(at, &[child]), &["--interface", "no0"], "interface 'no0' not found"),
        (&table(at, &[child]), &["--send-interface", "lo"], "send interface 'lo'"),
    ] {
        let directory = TempDir::new()?;
        let ready =
            Relay::spawn(host, &directory, table, arguments)?.await_ready(TIMEOUT, || false);
        let error = ready.err().context("impossible arguments were accepted")?.to_string();
        ensure!(error.contains(words) && error.starts_with("horolog: "), "{error} lacks {words}");
    }
    let relay = Relay::start(host, &loopback, &[])?;
    let listing = relay.listing()?;
    ensure!(listing.groups[0].engine == "sendmmsg", "{listing:?}");
    ensure!(listing.groups[0].xdp_unavailable.is_some(), "{listing:?}");
    // Only sockets reach a child on this host; without it, the kernel serves the group.
    let own = SocketAddr::from((host.first_interface().ipv4, 6_000));
    let mut relay = Relay::start(host, &table(at, &[child, own]), &["--engine", "xdp"])?;
    let one = &relay.listing()?.groups[0];
    let reason = one.xdp_unavailable.as_deref().unwrap_or_default();
    ensure!(one.engine == "sendmmsg" && reason.contains("on this host"), "{one:?}");
    relay.control(&["remove", "g", &own.to_string()])?;
    let one = &relay.listing()?.groups[0];
    ensure!(one.engine == "xdp" && one.xdp_unavailable.is_none(), "{one:?}");
    let (child, source) =
        (bind(lab.server(), child)?, bind(lab.server(), any_port_of(lab.server())?)?);
    send(&source, at, 0..50, 5_000)?;
    for expected in 0..50 {
        ensure!(receive_number(&child)? == expected);
    }
    // The relay checks this twice a second, and then reports the change.
    thread::sleep(DETECTION_TIME);
    signal_to(relay.running.pid(), "KILL")?;
    let mut stderr = None;
    wait_until("the relay ends", || {
        stderr = relay.running.exit_status().map(|(_, words)| words);
        Ok(stderr.is_some())
    })?;
    ensure!(
        stderr.as_deref() == Some("horolog: copies of group 'g' are made by xdp now"),
        "{stderr:?}"
    );
    Ok(())
}

/// A broadcast address receives nothing as a child, and the other children receive their copies.
fn a_broadcast_address_gets_nothing(engine: &str) -> Result<()> {
    const ALL: u16 = PORT + 1;
    let two = TwoChildren::new(&["--engine", engine])?;
    // The broadcast address of the link's network.
    let far = u32::from(two.lab.host(2).first_interface().ipv4) | 3;
    let all = SocketAddr::from((Ipv4Addr::from(far), ALL));
    let receiver = bind(two.lab.host(2), SocketAddr::from((Ipv4Addr::UNSPECIFIED, ALL)))?;
    two.relay.control(&["add", "g", &all.to_string()])?;
    let begun = two.relay.listing()?;
    let reason = begun.groups[0].xdp_unavailable.as_deref().unwrap_or_default();
    ensure!(engine != "xdp" || reason.contains("is a broadcast address"), "{begun:?}");
    two.exchange(0..100, &[0, 1])?;
    // The kernel has had time to create a neighbour entry for the address.
    thread::sleep(DETECTION_TIME);
    two.exchange(100..200, &[0, 1])?;
    check_no_copy(&receiver)?;
    let child = two.relay.child(all)?;
    ensure!(child.packets == 0 && child.dropped.get("forbidden") == Some(&200), "{child:?}");
    two.relay.control(&["remove", "g", &all.to_string()])?;
    ensure!(two.relay.listing()?.groups[0].engine == engine);
    Ok(())
}

/// Copies do not exceed the MTU of a route that is less than the interface's.
fn no_copy_is_longer_than_its_route_allows(engine: &str) -> Result<()> {
    const MTU: usize = 600;
    let two = TwoChildren::new(&["--engine", engine, "--no-fragment"])?;
    two.exchange(0..20, &[0, 1])?;
    let (far, near) = (two.children[1].ip(), &two.lab.client().interfaces[2].name);
    let (to, mtu) = (format!("{far}/32"), MTU.to_string());
    let set = two
        .lab
        .client()
        .command("ip")
        .args(["route", "add", &to, "dev", near, "mtu", &mtu])
        .output()?;
    ensure!(set.status.success(), "{set:?}");
    thread::sleep(DETECTION_TIME);
    send(&two.source, two.at, 20..120, 5_000)?;
    let fits = |number: &u32| payload(*number).len() + 28 <= MTU;
    for expected in (20..120).filter(fits) {
        ensure!(receive_number(&two.sockets[1])? == expected);
    }
    check_no_copy(&two.sockets[1])?;
    // Copies made by the kernel may overtake packets that wait at the socket.
    let mut all = (20..120).map(|_| receive_number(&two.sockets[0])).collect::<Result<Vec<_>>>()?;
    all.sort_unstable();
    ensure!(all.iter().copied().eq(20..120), "{all:?} received by the child without this MTU");
    let long = (20..120).filter(|number| !fits(number)).count() as u64;
    let child = two.relay.child(two.children[1])?;
    ensure!(child.dropped.get("too-large") == Some(&long), "{long}: {child:?}");
    ensure!(two.relay.listing()?.groups[0].engine == engine);
    Ok(())
}

const fn unspecified(ipv6: bool) -> IpAddr {
    if ipv6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) }
}

/// Returns the address of a host, with any port.
fn any_port_of(host: &LabHost) -> Result<SocketAddr> {
    Ok(SocketAddr::new(address(host, false)?, 0))
}

fn without_privileges_sockets_copy() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = SocketAddr::from((lab.client().first_interface().ipv4, PORT));
    let child = SocketAddr::new(address(lab.server(), false)?, PORT);
    let directory = TempDir::new()?;
    let file = directory.path().join("table.toml");
    std::fs::write(&file, table(at, &[child]))?;
    let run = |engine: &str, socket: &str| -> Result<Command> {
        let mut command = lab.client().command("setpriv");
        command.args(["--inh-caps=-all", "--bounding-set=-all"]).arg(binary()?);
        command.args(["relay", "run", "--engine", engine, "--config"]).arg(&file);
        command.arg("--socket").arg(directory.path().join(socket));
        Ok(command)
    };
    let refused = run_to_end(&mut run("xdp", "x.sock")?, TIMEOUT)?;
    let stderr = String::from_utf8(refused.stderr)?;
    ensure!(!refused.status.success() && stderr.contains("CAP_BPF"), "{stderr}");
    ensure!(stderr.lines().count() == 1, "{stderr}");
    let socket = directory.path().join("control.sock");
    let mut running = horolog_lab::RunningProgram::start(&mut run("auto", "control.sock")?)?;
    running.await_ready(TIMEOUT, || UnixStream::connect(&socket).is_ok())?;
    let relay = Relay { running, directory };
    let listing = relay.listing()?;
    ensure!(listing.engine == "sendmmsg" && listing.interfaces.is_empty(), "{listing:?}");
    Ok(())
}

/// A program on the relay's host sends each packet once, by a route through the relay's send
/// interface; packets of other hosts are relayed as well, and no child receives one twice.
fn packets_of_a_local_program_are_sent_once(engine: &str, ipv6: bool) -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 4, ..LabConfig::default() })?;
    let host = lab.client();
    let children = [
        SocketAddr::new(address(lab.host(2), ipv6)?, PORT),
        SocketAddr::new(address(lab.host(3), ipv6)?, PORT),
    ];
    let sockets = [bind(lab.host(2), children[0])?, bind(lab.host(3), children[1])?];
    let group: IpAddr = if ipv6 { GROUP_V6.into() } else { GROUP.into() };
    let (listen, any_port) = (SocketAddr::new(group, PORT), SocketAddr::new(unspecified(ipv6), 0));
    let on = format!("interface = \"{}\"\nsources", host.interfaces[0].name);
    let relay = Relay::start(
        host,
        &table(listen, &children).replace("sources", &on),
        &["--engine", engine, "--send-interface", "relay0"],
    )?;
    ensure!(relay.listing()?.groups[0].engine == engine, "{:?}", relay.listing()?);
    let own = host.netlink()?.link_by_name("relay0")?.index;
    let ip = |arguments: &str| -> Result<()> {
        let done = host.command("ip").args(arguments.split(' ')).output()?;
        ensure!(done.status.success(), "ip {arguments}: {done:?}");
        Ok(())
    };
    if ipv6 {
        // The table 'local', which the kernel searches first, has routes to all groups; and the
        // source is chosen from the addresses of the interface only.
        ip(&format!("route add {group}/128 dev relay0 table local"))?;
        ip("address add 2001:db8:0:fa::1/128 dev relay0 nodad")?;
    } else {
        ip(&format!("route add {group}/32 dev relay0"))?;
    }
    let program = bind(host, any_port)?;
    send(&program, listen, 0..500, 5_000)?;
    let comes = |numbers: std::ops::Range<u32>| -> Result<()> {
        for socket in &sockets {
            for expected in numbers.clone() {
                let received = receive_number(socket)
                    .with_context(|| format!("{expected}: {:?}", relay.listing()))?;
                ensure!(received == expected, "received {received} instead of {expected}");
            }
        }
        Ok(())
    };
    comes(0..500)?;
    // A local member of the group on that interface duplicates nothing. Over IPv6 the kernel
    // delivers to members on any interface, and so to the relay once more.
    let listener = host.run(|| DatagramSocket::udp(any_port))??;
    if !ipv6 {
        listener.join(group, own)?;
    }
    send(&program, listen, 500..550, 5_000)?;
    comes(500..550)?;
    // A connected socket sends through the interface that has its address.
    if !ipv6 {
        ip("address add 192.0.2.250/32 dev relay0")?;
    }
    let connected = bind(host, any_port)?;
    connected.connect(listen)?;
    (550..600).try_for_each(|number| connected.send(&payload(number)).map(drop))?;
    comes(550..600)?;
    let source = bind(lab.server(), SocketAddr::new(address(lab.server(), ipv6)?, 0))?;
    if !ipv6 {
        let groups = Prefix::new(Ipv4Addr::new(224, 0, 0, 0).into(), 4)?;
        lab.server().netlink()?.add_route(groups, None, lab.server().first_interface().index)?;
    }
    send(&source, listen, 600..700, 5_000)?;
    comes(600..700)?;
    // Longer than the MTU of every link, and fragmented after the relay only.
    let long = [3_000, 30_000];
    long.iter().try_for_each(|&bytes| program.send_to(&vec![7; bytes], listen).map(drop))?;
    for (socket, child) in sockets.iter().zip(children) {
        for bytes in long {
            ensure!(socket.recv(&mut vec![0; 65_536])? == bytes, "wrong length of a copy");
        }
        check_no_copy(socket)?;
        let child = relay.child(child)?;
        ensure!(child.packets == 702 && child.dropped.is_empty(), "{child:?}");
    }
    let group = &relay.listing()?.groups[0];
    let bytes: u64 = (0..700).map(|number| payload(number).len() as u64).sum();
    ensure!(group.packets == 702 && group.bytes == bytes + 33_000, "{group:?}");
    Ok(())
}

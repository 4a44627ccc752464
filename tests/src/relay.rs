//! Scenarios of `horolog relay` in lab hosts: content, order and number of all copies while
//! children join and leave; relays of relays; multicast in and unicast out; dead children, and
//! packets that are too long for a child's link; invalid tables.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use horolog_relay::{ChildListing, RelayListing};
use horolog_sys::socket::DatagramSocket;
use horolog_wire::prefix::Prefix;
use tempfile::TempDir;

use crate::process::{TIMEOUT, binary, run_to_end, signal_to, wait_until};
use crate::scenario::{Scenario, scenario};
use crate::{ROOT, ROOT_AND_IPV6, relay, relay_lengths, scenarios};

pub(crate) const PORT: u16 = 5_000;
const RECEIVE_BYTES: usize = 16 << 20;
pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
/// Time in which copies under way and unexpected copies would arrive.
pub(crate) const QUIET_PERIOD: Duration = Duration::from_millis(300);

/// Scenario of one engine.
type WithEngine = fn(&str) -> Result<()>;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, relay:
        an_invalid_table_is_refused,
        a_killed_relay_does_not_block_its_successor,
    ));
    let each: [(&str, WithEngine); 3] = [
        ("multicast_goes_in_and_unicast_out", multicast_goes_in_and_unicast_out),
        ("relays_feed_relays_and_loops_end", relays_feed_relays_and_loops_end),
        ("a_dead_child_does_not_delay_the_others", a_dead_child_does_not_delay_the_others),
    ];
    for (name, run) in each {
        for engine in ["sendmmsg", "xdp"] {
            let run = move || run(engine);
            all.push(scenario(format!("relay::{name}::{engine}"), ROOT, run));
        }
    }
    for engine in ["send", "sendmmsg", "xdp"] {
        let name = |what: &str| format!("relay::{what}::{engine}");
        let run = move || copies_are_correct_while_children_join_and_leave(engine, false);
        all.push(scenario(name("copies_are_correct_while_children_join_and_leave"), ROOT, run));
        let run = move || copies_are_correct_while_children_join_and_leave(engine, true);
        all.push(scenario(name("copies_are_correct_over_ipv6"), ROOT_AND_IPV6, run));
    }
    all.extend(relay_lengths::all());
    all
}

/// Running relay, with the directory of its table and socket.
pub(crate) struct Relay {
    pub(crate) running: RunningProgram,
    pub(crate) directory: TempDir,
}

impl Relay {
    pub(crate) fn start(host: &LabHost, table: &str, arguments: &[&str]) -> Result<Self> {
        let directory = TempDir::new()?;
        let mut relay =
            Self { running: Self::spawn(host, &directory, table, arguments)?, directory };
        let socket = relay.socket();
        relay.running.await_ready(TIMEOUT, || UnixStream::connect(&socket).is_ok())?;
        Ok(relay)
    }

    pub(crate) fn spawn(
        host: &LabHost,
        at: &TempDir,
        table: &str,
        arguments: &[&str],
    ) -> Result<RunningProgram> {
        let file = at.path().join("table.toml");
        fs::write(&file, table)?;
        let mut command = host.command(binary()?);
        command.args(["relay", "run", "--config"]).arg(file).arg("--socket");
        command.arg(at.path().join("control.sock")).args(arguments);
        Ok(RunningProgram::start(&mut command)?)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("control.sock")
    }

    pub(crate) fn try_control(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = Command::new(binary()?);
        command.arg("relay").args(arguments).arg("--socket").arg(self.socket());
        run_to_end(&mut command, TIMEOUT)
    }

    pub(crate) fn control(&self, arguments: &[&str]) -> Result<String> {
        let output = self.try_control(arguments)?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }

    pub(crate) fn listing(&self) -> Result<RelayListing> {
        Ok(serde_json::from_str(&self.control(&["list", "--json"])?)?)
    }

    pub(crate) fn child(&self, address: SocketAddr) -> Result<ChildListing> {
        let listing = self.listing()?;
        let mut children = listing.groups.into_iter().flat_map(|group| group.children);
        children.find(|child| child.address == address).context("no such child")
    }

    /// Returns the number of packets of the first group that were refused for this reason.
    fn refused(&self, reason: &str) -> Result<u64> {
        Ok(self.listing()?.groups[0].refused.get(reason).copied().unwrap_or(0))
    }
}

/// Returns a table of one group, to which every host of the lab may send.
pub(crate) fn table(listen: impl Into<SocketAddr>, children: &[SocketAddr]) -> String {
    let children: Vec<String> = children.iter().map(|child| format!("\"{child}\"")).collect();
    format!(
        "destinations = [\"192.0.2.0/24\", \"10.0.0.0/8\", \"2001:db8::/32\"]\n\
         copy-rate = 10000000\n[[group]]\nname = \"g\"\nlisten = \"{}\"\nrate = 1000000\n\
         sources = [\"192.0.2.0/24\", \"2001:db8::/32\"]\nchildren = [{}]\n",
        listen.into(),
        children.join(", ")
    )
}

/// Returns a socket whose receive buffer bridges the delays of a busy machine.
pub(crate) fn bind(host: &LabHost, at: SocketAddr) -> Result<UdpSocket> {
    let open = || -> io::Result<UdpSocket> {
        let socket = DatagramSocket::udp(at)?;
        socket.set_receive_buffer(RECEIVE_BYTES)?;
        socket.bind(at)?;
        Ok(socket.as_fd().try_clone_to_owned()?.into())
    };
    let socket = host.run(open)??;
    socket.set_read_timeout(Some(TIMEOUT))?;
    Ok(socket)
}

pub(crate) fn address(host: &LabHost, ipv6: bool) -> Result<IpAddr> {
    let port = host.first_interface();
    if ipv6 { Ok(port.ipv6.context("no IPv6 address")?.into()) } else { Ok(port.ipv4.into()) }
}

/// Returns the payload of a numbered packet: the number, and bytes that follow from it.
pub(crate) fn payload(number: u32) -> Vec<u8> {
    let length = 64 + (number as usize * 37) % 1_200;
    let filler = (0..length).map(|at| (number as usize + at) as u8);
    number.to_be_bytes().into_iter().chain(filler).collect()
}

/// Receives one packet, which must be complete and correct; returns its number.
pub(crate) fn receive_number(socket: &UdpSocket) -> Result<u32> {
    let mut buffer = [0; 2_048];
    let length = loop {
        match socket.recv(&mut buffer) {
            // A signal interrupted the call.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            received => break received.context("a copy is missing")?,
        }
    };
    let number = u32::from_be_bytes(*buffer.first_chunk().context("a short copy")?);
    ensure!(buffer[..length] == payload(number)[..], "copy {number} is damaged");
    Ok(number)
}

/// Sends numbered packets, about `rate` per second.
pub(crate) fn send(
    source: &UdpSocket,
    to: SocketAddr,
    numbers: std::ops::Range<u32>,
    rate: u32,
) -> Result<()> {
    let (begun, first) = (Instant::now(), numbers.start);
    for number in numbers {
        let due = Duration::from_secs_f64(f64::from(number - first) / f64::from(rate));
        thread::sleep(due.saturating_sub(begun.elapsed()));
        source.send_to(&payload(number), to)?;
    }
    Ok(())
}

pub(crate) fn check_no_copy(socket: &UdpSocket) -> Result<()> {
    socket.set_read_timeout(Some(QUIET_PERIOD))?;
    ensure!(socket.recv(&mut [0; 2_048]).is_err(), "unexpected copy");
    Ok(())
}

fn copies_are_correct_while_children_join_and_leave(engine: &str, ipv6: bool) -> Result<()> {
    let (packets, rate) = if engine == "xdp" { (12_000, 6_000) } else { (4_000, 2_000) };
    // The source is at the first server, the relay in the middle, the children at other servers.
    let lab = Lab::new(&LabConfig { hosts: 5, ipv6: true, ..LabConfig::default() })?;
    let port = &lab.client().interfaces[0];
    let near: IpAddr = if ipv6 { port.ipv6.context("no IPv6")?.into() } else { port.ipv4.into() };
    let at = SocketAddr::new(near, PORT);
    let children = (2..5)
        .map(|host| Ok(SocketAddr::new(address(lab.host(host), ipv6)?, PORT)))
        .collect::<Result<Vec<_>>>()?;
    let sockets =
        (2..5).map(|host| bind(lab.host(host), children[host - 2])).collect::<Result<Vec<_>>>()?;
    let relay = Relay::start(lab.client(), &table(at, &children[..2]), &["--engine", engine])?;
    let source = bind(lab.server(), SocketAddr::new(address(lab.server(), ipv6)?, 0))?;

    let changing_child = children[2].to_string();
    let changes = thread::scope(|scope| -> Result<u32> {
        let receivers: Vec<_> = sockets[..2]
            .iter()
            .map(|socket| {
                scope.spawn(move || {
                    for expected in 0..packets {
                        let received = receive_number(socket)?;
                        ensure!(received == expected, "received {received}, not {expected}");
                    }
                    Ok(())
                })
            })
            .collect();
        let sending = scope.spawn(|| send(&source, at, 0..packets, rate));
        let mut changes = 0;
        while !sending.is_finished() {
            relay.control(&["add", "g", &changing_child])?;
            relay.control(&["remove", "g", &changing_child])?;
            changes += 1;
        }
        sending.join().ok().context("the source panicked")??;
        for receiver in receivers {
            receiver.join().ok().context("a receiver panicked")??;
        }
        Ok(changes)
    })?;
    ensure!(changes > 2, "only {changes} changes while packets were sent");
    // The child that joins and leaves has each copy complete, once and in order.
    let changing_socket = &sockets[2];
    changing_socket.set_read_timeout(Some(QUIET_PERIOD))?;
    let (mut last, mut received) = (None, 0);
    while let Ok(number) = receive_number(changing_socket) {
        ensure!(last < Some(number), "received {number} after {last:?}");
        (last, received) = (Some(number), received + 1);
    }
    ensure!(received > 0 && received < packets, "{received} copies for the changing child");
    for (socket, child) in sockets.iter().zip(&children[..2]) {
        check_no_copy(socket)?;
        let child = relay.child(*child)?;
        ensure!(child.packets == u64::from(packets) && child.dropped.is_empty(), "{child:?}");
    }
    let group = &relay.listing()?.groups[0];
    ensure!(group.engine == engine && group.packets == u64::from(packets), "{group:?}");
    let text = relay.control(&["list", "--toml"])?;
    ensure!(text.contains(&children[0].to_string()) && !text.contains(&changing_child), "{text}");
    Ok(())
}

fn multicast_goes_in_and_unicast_out(engine: &str) -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    let child = SocketAddr::new(address(lab.host(2), false)?, PORT);
    let receiver = bind(lab.host(2), child)?;
    let listen = SocketAddr::from((GROUP, PORT));
    let port = &lab.client().interfaces[0];
    let on = format!("interface = \"{}\"\nsources", port.name);
    let relay = Relay::start(
        lab.client(),
        &table(listen, &[child]).replace("sources", &on),
        &["--metrics", "127.0.0.1:9105", "--engine", engine],
    )?;
    // TTL 1, the default of multicast; through the only interface.
    let source = bind(lab.server(), SocketAddr::new(address(lab.server(), false)?, 0))?;
    let groups = Prefix::new(Ipv4Addr::new(224, 0, 0, 0).into(), 4)?;
    lab.server().netlink()?.add_route(groups, None, lab.server().first_interface().index)?;
    send(&source, listen, 0..500, 5_000)?;
    for expected in 0..500 {
        ensure!(receive_number(&receiver)? == expected);
    }
    check_no_copy(&receiver)?;
    // Packets to another group at the same port are not relayed.
    source.send_to(&payload(0), (Ipv4Addr::new(239, 1, 2, 4), PORT))?;
    check_no_copy(&receiver)?;
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 9_105));
    let mut stream = lab.client().run(|| TcpStream::connect(at))??;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics)?;
    let copies = format!("horolog_relay_copies_total{{group=\"g\",child=\"{child}\"}} 500");
    ensure!(metrics.contains(&copies), "{metrics}");
    ensure!(relay.child(child)?.packets == 500);
    Ok(())
}

/// Two relays: the second is a child of the first and, by mistake, the first a child of the second.
fn relays_feed_relays_and_loops_end(engine: &str) -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    let (upper, lower) = (lab.client(), lab.host(2));
    let upper_at = SocketAddr::from((upper.interfaces[1].ipv4, PORT));
    let lower_at = SocketAddr::new(address(lower, false)?, PORT);
    let leaf_at = SocketAddr::new(lower_at.ip(), 6_000);
    let entry = SocketAddr::from((upper.interfaces[0].ipv4, PORT));
    let leaf = bind(lower, leaf_at)?;
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let first = Relay::start(upper, &table(any, &[lower_at]), &["--engine", engine])?;
    // The leaf is on the host of its relay, where only sockets reach it.
    let second = Relay::start(lower, &table(lower_at, &[leaf_at]), &[])?;
    ensure!(first.listing()?.groups[0].engine == engine, "{:?}", first.listing()?);
    let source = bind(lab.server(), SocketAddr::new(address(lab.server(), false)?, 0))?;
    thread::scope(|scope| -> Result<()> {
        let sending = scope.spawn(|| send(&source, entry, 0..1_000, 5_000));
        for expected in 0..1_000 {
            ensure!(receive_number(&leaf)? == expected);
        }
        sending.join().ok().context("the source panicked")?
    })?;
    check_no_copy(&leaf)?;
    ensure!(first.child(lower_at)?.packets == 1_000);
    // Each relay is a child of the other now, and packets from a child are not relayed.
    second.control(&["add", "g", &upper_at.to_string()])?;
    send(&source, entry, 0..100, 5_000)?;
    check_no_copy(&leaf)?;
    let refused = second.refused("from-child")?;
    ensure!(refused == 100, "{refused} refused: {:?}", second.listing()?);
    ensure!(first.child(lower_at)?.packets == 1_100, "refused packets were relayed");
    // Packets from a source that is not in the list are not relayed.
    let unlisted = bind(upper, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    unlisted.send_to(&payload(0), (Ipv4Addr::LOCALHOST, PORT))?;
    check_no_copy(&leaf)?;
    ensure!(first.refused("source")? == 1);
    Ok(())
}

fn a_dead_child_does_not_delay_the_others(engine: &str) -> Result<()> {
    const PACKETS: u32 = 6_000;
    let lab = Lab::new(&LabConfig { hosts: 3, ..LabConfig::default() })?;
    let alive = SocketAddr::new(address(lab.host(2), false)?, PORT);
    let receiver = bind(lab.host(2), alive)?;
    // Addresses on the link that no host has, so that no MAC address resolves.
    let netlink = lab.client().netlink();
    let unresolved: Vec<SocketAddr> =
        (1..=40).map(|host| SocketAddr::from(([10, 77, 0, host], PORT))).collect();
    netlink?.add_route(
        Prefix::new(Ipv4Addr::new(10, 77, 0, 0).into(), 24)?,
        None,
        lab.client().interfaces[0].index,
    )?;
    let nowhere = SocketAddr::from(([10, 99, 0, 1], PORT));
    let mut children = unresolved.clone();
    children.extend([nowhere, alive]);
    let at = SocketAddr::from((lab.client().interfaces[0].ipv4, PORT));
    let arguments = ["--engine", engine, "--no-fragment"];
    let relay = Relay::start(lab.client(), &table(at, &children), &arguments)?;
    ensure!(relay.listing()?.groups[0].engine == engine, "{:?}", relay.listing()?);
    let source = bind(lab.server(), SocketAddr::new(address(lab.server(), false)?, 0))?;
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let sending = scope.spawn(|| send(&source, at, 0..PACKETS, 2_000));
        for expected in 0..PACKETS {
            let received = receive_number(&receiver)?;
            ensure!(received == expected, "received {received} instead of {expected}");
        }
        sending.join().ok().context("the source panicked")?
    })?;
    let took = begun.elapsed();
    ensure!(took < Duration::from_secs(3) + TIMEOUT / 2, "{took:?}");
    let listed = relay.child(unresolved[0])?;
    ensure!(
        listed.unreachable && listed.dropped.get("unresolved").is_some_and(|n| *n > 1_000),
        "{listed:?}"
    );
    let listed = relay.child(nowhere)?;
    ensure!(listed.dropped.get("unreachable") == Some(&u64::from(PACKETS)), "{listed:?}");
    // A packet that is too long for a child's link is lost for this child only.
    lab.client().netlink()?.set_link_mtu(lab.client().interfaces[1].index, 600)?;
    thread::sleep(Duration::from_millis(1_500));
    let sizes = (0..100).filter(|one| payload(*one).len() + 28 > 600).count() as u64;
    send(&source, at, 0..100, 2_000)?;
    for expected in (0..100).filter(|one| payload(*one).len() + 28 <= 600) {
        ensure!(receive_number(&receiver)? == expected);
    }
    let listed = relay.child(alive)?;
    ensure!(listed.dropped.get("too-large") == Some(&sizes), "{sizes}: {listed:?}");
    Ok(())
}

fn an_invalid_table_is_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = SocketAddr::from((lab.client().first_interface().ipv4, PORT));
    let good = table(at, &[SocketAddr::new(address(lab.server(), false)?, PORT)]);
    for (from, to, words) in [
        ("[[group]]", "[[group", "line 3"),
        ("name", "nmae", "unknown field"),
        ("\"g\"", "\"a b\"", "invalid group name"),
        ("sources = [\"192.0.2.0/24\", \"2001:db8::/32\"]", "sources = []", "no sources"),
        ("destinations = [\"192.0.2.0/24\"", "destinations = [\"10.0.0.0/8\"", "destinations"),
        ("listen = \"192.0.2.1", "listen = \"192.0.2.99", "not an address of this host"),
    ] {
        let bad = good.replace(from, to);
        ensure!(bad != good, "{from}");
        let directory = TempDir::new()?;
        let ready =
            Relay::spawn(lab.client(), &directory, &bad, &[])?.await_ready(TIMEOUT, || false);
        let error = ready.err().context("an invalid table was accepted")?.to_string();
        ensure!(error.contains(words) && error.starts_with("horolog: "), "{error} lacks {words}");
    }
    let directory = TempDir::new()?;
    let idle = Relay::spawn(lab.client(), &directory, &good, &["--engine=send", "--interface=lo"])?
        .await_ready(TIMEOUT, || false);
    let error = idle.err().context("a flag without effect was accepted")?.to_string();
    ensure!(error.contains("--interface is the ingress of XDP"), "{error}");
    let file = directory.path().join("table.toml");
    for (text, is_good) in [(&*good, true), (&*good.replace("\"g\"", "\"a b\""), false)] {
        fs::write(&file, text)?;
        let mut check = Command::new(binary()?);
        check.args(["relay", "run", "--check", "--config"]).arg(&file);
        let output = run_to_end(&mut check, TIMEOUT)?;
        let status = if is_good { 0 } else { 2 };
        ensure!(output.status.code() == Some(status), "{output:?}");
        let bytes = if is_good { &output.stdout } else { &output.stderr };
        let messages = String::from_utf8_lossy(bytes);
        let words = if is_good { "groups: 1, children: 1" } else { "invalid group name 'a b'" };
        ensure!(messages.contains(words) && messages.lines().count() == 1, "{messages}");
    }
    let relay = Relay::start(lab.client(), &good, &[])?;
    let before = relay.listing()?.table;
    for (arguments, words) in [
        (&["add", "h", "192.0.2.2:1"][..], "group 'h' not found"),
        (&["add", "g", "203.0.113.1:1"], "outside the destinations"),
        (&["add", "g", "192.0.2.1:5000"], "an address of this relay"),
        (&["remove", "g", "192.0.2.2:1"], "has no child"),
        (
            &["add", "h", "--listen", "239.0.0.1:7", "--source", "0.0.0.0/0", "--interface", "no0"],
            "no0",
        ),
    ] {
        let output = relay.try_control(arguments)?;
        let stderr = String::from_utf8(output.stderr)?;
        ensure!(!output.status.success() && stderr.contains(words), "{arguments:?}: {stderr}");
        ensure!(stderr.lines().count() == 1, "{stderr}");
    }
    ensure!(relay.listing()?.table == before);
    // A table file that became invalid, by syntax or content, changes nothing; a valid one does.
    let file = relay.directory.path().join("table.toml");
    let refused = relay.listing()?.changes_refused;
    let lacking = good.replace("listen = \"192.0.2.1", "listen = \"192.0.2.99");
    for (bad, count) in [("copy-rate = none", 1), (&lacking, 2)] {
        fs::write(&file, bad)?;
        signal_to(relay.running.pid(), "HUP")?;
        wait_until("changes are refused", || {
            Ok(relay.listing()?.changes_refused == refused + count)
        })?;
        ensure!(relay.listing()?.table == before, "accepted: {bad}");
    }
    // A FIFO without a writer would block a relay that opened it, and no signal would be handled.
    fs::remove_file(&file)?;
    ensure!(Command::new("mkfifo").arg(&file).status()?.success(), "mkfifo");
    signal_to(relay.running.pid(), "HUP")?;
    wait_until("changes are refused", || Ok(relay.listing()?.changes_refused == refused + 3))?;
    fs::remove_file(&file)?;
    fs::write(&file, good.replace("name = \"g\"", "name = \"new\""))?;
    signal_to(relay.running.pid(), "HUP")?;
    wait_until("the table is read", || Ok(relay.listing()?.table.groups[0].name == "new"))?;
    ensure!(relay.listing()?.changes_refused == refused + 3);
    Ok(())
}

fn a_killed_relay_does_not_block_its_successor() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = SocketAddr::from((lab.client().first_interface().ipv4, PORT));
    let child = SocketAddr::new(address(lab.server(), false)?, PORT);
    let mut relay = Relay::start(lab.client(), &table(at, &[child]), &[])?;
    relay.running = {
        signal_to(relay.running.pid(), "KILL")?;
        thread::sleep(QUIET_PERIOD);
        ensure!(relay.socket().exists(), "a killed relay left no socket");
        Relay::spawn(lab.client(), &relay.directory, &table(at, &[child]), &[])?
    };
    wait_until("the relay starts again", || Ok(relay.listing().is_ok()))
}

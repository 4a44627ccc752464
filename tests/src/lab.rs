//! Scenarios of labs: hosts and links have the requested settings, datagrams cross, and nothing is
//! left, however a lab ends. They need root.
//!
//! Two scenarios kill another process: the scenario runner itself, started with [`HELPER`] as its
//! first argument, for which it calls [`helper`].

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use horolog_lab::{HOSTS_MAX, Lab, LabConfig, LabError, LabHost, LabSummary};
use horolog_sys::ethtool;
use horolog_sys::namespace::{NetNs, delete_named, die_with_parent};
use horolog_sys::netlink::{Netlink, NetlinkError, VethEndConfig, VethPairConfig};
use horolog_wire::prefix::Prefix;

use crate::process::signal;
use crate::xdp_relay_changes::{self, RELAY_HELPER};

/// First argument with which the runner executes [`helper`].
pub(crate) const HELPER: &str = "lab-helper";

/// Timeout of the kernel's removal of a namespace on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of SIGTERM on Linux (`signal(7)`).
const SIGTERM: i32 = 15;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Named lab that is removed when dropped.
struct NamedLab(String);

impl NamedLab {
    fn new(suffix: &str) -> Self {
        Self(format!("check-{}-{suffix}", std::process::id()))
    }

    fn find(&self) -> Result<Option<LabSummary>> {
        Ok(horolog_lab::list_labs()?.into_iter().find(|lab| lab.name == self.0))
    }
}

impl Drop for NamedLab {
    fn drop(&mut self) {
        // Ignored: most scenarios have removed the lab themselves.
        let _ = horolog_lab::remove_lab(&self.0);
    }
}

/// Child process that is killed and reaped when dropped.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Datagrams cross the link in both directions, over IPv4 and IPv6, from the start and without
/// loss.
pub(crate) fn datagrams_cross() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (client, server) = (lab.client(), lab.server());
    exchange_datagrams(
        client,
        server,
        client.first_interface().ipv4.into(),
        server.first_interface().ipv4.into(),
    )?;
    let v6 = |host: &LabHost| host.first_interface().ipv6.context("no IPv6 address");
    exchange_datagrams(client, server, v6(client)?.into(), v6(server)?.into())
}

/// A client in the middle of a star reaches each of three servers.
pub(crate) fn a_star_reaches_every_server() -> Result<()> {
    let lab = Lab::new(&LabConfig { hosts: 4, ..LabConfig::default() })?;
    let names: Vec<&str> = lab.hosts().iter().map(|host| host.name.as_str()).collect();
    ensure!(names == ["client", "server", "server2", "server3"], "{names:?}");
    for (port, server) in lab.client().interfaces.iter().zip(&lab.hosts()[1..]) {
        exchange_datagrams(
            lab.client(),
            server,
            port.ipv4.into(),
            server.first_interface().ipv4.into(),
        )?;
    }
    Ok(())
}

fn exchange_datagrams(client: &LabHost, server: &LabHost, from: IpAddr, to: IpAddr) -> Result<()> {
    let bind = |host: &LabHost, address: IpAddr| -> Result<UdpSocket> {
        let socket = host.run(|| UdpSocket::bind((address, 0)))??;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(socket)
    };
    let (requesting, answering) = (bind(client, from)?, bind(server, to)?);
    let mut buffer = [0; 64];
    for number in 0..100u8 {
        requesting.send_to(&[number], answering.local_addr()?)?;
        let (length, source) = answering.recv_from(&mut buffer).context("no request came")?;
        ensure!(source == requesting.local_addr()? && buffer[..length] == [number]);
        answering.send_to(&buffer[..length], source)?;
        let (length, source) = requesting.recv_from(&mut buffer).context("no reply came")?;
        ensure!(source == SocketAddr::new(to, answering.local_addr()?.port()));
        ensure!(buffer[..length] == [number]);
    }
    Ok(())
}

/// Interfaces have the requested queues, and are each other's peers across namespaces.
pub(crate) fn links_have_the_requested_settings() -> Result<()> {
    let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
    let (client, server) = (lab.client(), lab.server());
    for host in [client, server] {
        let port = host.first_interface();
        let link = host.netlink()?.link_by_index(port.index)?;
        ensure!(link.name == port.name && link.mac == Some(port.mac));
        ensure!(link.up && link.operational, "{link:?}");
        ensure!(link.kind.as_deref() == Some("veth"), "kind {:?}", link.kind);
        ensure!((link.num_rx_queues, link.num_tx_queues) == (2, 2), "{link:?}");
        let channels = host.run(|| ethtool::channels(&port.name))??;
        ensure!((channels.rx, channels.tx) == (2, 2), "{channels:?}");
        let loopback = host.netlink()?.link_by_name("lo")?;
        ensure!(loopback.up, "lo is down");
    }
    let mut netlink = client.netlink()?;
    let link = netlink.link_by_index(client.first_interface().index)?;
    ensure!(link.peer_index == Some(server.first_interface().index), "{link:?}");
    let nsid = netlink.nsid_of(server.netns.as_fd())?;
    ensure!(nsid.is_some() && link.peer_nsid == nsid, "{:?} is not {nsid:?}", link.peer_nsid);
    let unrelated = NetNs::anonymous()?;
    ensure!(netlink.nsid_of(unrelated.as_fd())?.is_none(), "an unrelated namespace has an nsid");
    Ok(())
}

/// The driver's counters of a veth can be read, and its queues and GRO can be changed.
pub(crate) fn ethtool_works_on_veth() -> Result<()> {
    let lab = Lab::new(&LabConfig { queues: 2, ..LabConfig::default() })?;
    let interface = lab.client().first_interface().name.clone();
    let stats = lab.client().run(|| ethtool::stats(&interface))??;
    let value = |name: &str| stats.iter().find(|(known, _)| known == name).map(|&(_, value)| value);
    for name in [
        "rx_queue_0_xdp_packets",
        "rx_queue_1_xdp_packets",
        "rx_queue_1_drops",
        "rx_queue_1_xdp_tx_errors",
        "tx_queue_1_xdp_xmit_errors",
    ] {
        ensure!(value(name) == Some(0), "{name} in {stats:?}");
    }
    ensure!(
        value("peer_ifindex") == Some(u64::from(lab.server().first_interface().index)),
        "{stats:?}"
    );
    lab.client().run(|| -> Result<()> {
        let before = ethtool::channels(&interface)?;
        ethtool::set_channels(&interface, &ethtool::NicQueueCounts { rx: 1, tx: 1, ..before })?;
        let after = ethtool::channels(&interface)?;
        ensure!((after.rx, after.tx, after.rx_max) == (1, 1, before.rx_max), "{after:?}");
        for on in [true, false] {
            ethtool::set_gro(&interface, on)?;
            ensure!(ethtool::gro(&interface)? == on, "GRO is not {on}");
        }
        Ok(())
    })?
}

/// Routes to the other host, to this host and to simulated clients are found, and missing routes
/// are reported.
pub(crate) fn routes_are_found() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (client, server) = (lab.client(), lab.server());
    let mut netlink = client.netlink()?;
    let out = netlink.route_get(server.first_interface().ipv4.into(), None)?;
    ensure!(
        out.index == client.first_interface().index && out.gateway.is_none() && !out.local,
        "{out:?}"
    );
    ensure!(out.source == Some(client.first_interface().ipv4.into()), "{out:?}");
    let own = netlink.route_get(client.first_interface().ipv4.into(), None)?;
    ensure!(own.local, "{own:?}");
    for nowhere in ["198.51.100.1", "2001:db8:ffff::1"] {
        match netlink.route_get(nowhere.parse()?, None) {
            Err(NetlinkError::Unreachable { destination, .. }) => {
                ensure!(destination.to_string() == nowhere);
            }
            other => bail!("{nowhere} should be unreachable: {other:?}"),
        }
    }
    let mut netlink = server.netlink()?;
    for simulated in ["10.9.8.7", "fd12:3456::1"] {
        let back = netlink.route_get(simulated.parse()?, None)?;
        let gateway = back.gateway.context("no gateway")?;
        let port = client.first_interface();
        ensure!(gateway == IpAddr::from(port.ipv4) || Some(gateway) == port.ipv6.map(IpAddr::from));
        ensure!(back.index == server.first_interface().index && !back.local, "{back:?}");
    }
    let simulated: Prefix = "10.0.0.0/8".parse()?;
    netlink.delete_route(simulated)?;
    let gone = netlink.route_get("10.9.8.7".parse()?, None);
    ensure!(matches!(gone, Err(NetlinkError::Unreachable { .. })), "{gone:?}");
    Ok(())
}

/// Neighbours of a lab are preset; others are resolved, and absent ones are reported as
/// unreachable.
pub(crate) fn neighbours_are_resolved() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (client, server) = (lab.client(), lab.server());
    let index = client.first_interface().index;
    let mac = server.first_interface().mac;
    let mut netlink = client.netlink()?;
    let known =
        netlink.neighbour(index, server.first_interface().ipv4.into())?.context("no neighbour")?;
    ensure!(known.usable && known.mac == Some(mac), "{known:?}");

    for (own, present, absent) in [
        ("198.51.100.1/24", "198.51.100.2/24", "198.51.100.3"),
        ("2001:db8:1::1/64", "2001:db8:1::2/64", "2001:db8:1::3"),
    ] {
        let present: Prefix = present.parse()?;
        netlink.add_address(index, own.parse()?)?;
        server.netlink()?.add_address(server.first_interface().index, present)?;
        ensure!(netlink.neighbour(index, present.address())?.is_none());
        let resolved = client.run(|| netlink.resolve_mac(index, present.address(), TIMEOUT))??;
        ensure!(resolved == mac, "{present} is at {resolved:?}");

        let wait = Duration::from_millis(50);
        let unresolved = client.run(|| {
            netlink.resolve_mac(index, absent.parse()?, wait).map_err(anyhow::Error::from)
        })?;
        let error = unresolved.err().context("an absent neighbour was resolved")?;
        let netlink_error = error.downcast_ref();
        ensure!(
            matches!(netlink_error, Some(NetlinkError::NeighbourUnreachable { .. })),
            "{error}"
        );
    }
    Ok(())
}

/// Interfaces can be set up, changed, moved to another namespace and deleted.
pub(crate) fn links_can_be_changed() -> Result<()> {
    let (here, there) = (NetNs::anonymous()?, NetNs::anonymous()?);
    let mut netlink = here.run(Netlink::open)??;
    let end = |name: &str| VethEndConfig { name: name.to_owned(), mac: None };
    netlink.create_veth(&VethPairConfig {
        local: end("a"),
        peer: end("b"),
        peer_namespace: here.as_fd(),
        queues: 1,
    })?;
    let a = netlink.link_by_name("a")?;
    ensure!(!a.up && a.mac.is_some() && a.peer_nsid.is_none(), "{a:?}");
    netlink.set_link_mtu(a.index, 1400)?;
    netlink.set_link_mac(a.index, [2, 0, 0, 0, 0, 7])?;
    netlink.set_link_up(a.index)?;
    let changed = netlink.link_by_name("a")?;
    ensure!(changed.up && changed.mtu == 1400 && changed.mac == Some([2, 0, 0, 0, 0, 7]));
    netlink.set_link_down(a.index)?;
    ensure!(!netlink.link_by_name("a")?.up);

    netlink.move_link(a.index, there.as_fd())?;
    ensure!(matches!(netlink.link_by_name("a"), Err(NetlinkError::NoSuchInterface(_))));
    let mut far = there.run(Netlink::open)??;
    let moved = far.link_by_name("a")?;
    far.delete_link(moved.index)?;
    ensure!(far.links()?.len() == 1, "lo alone should be left");
    ensure!(netlink.links()?.len() == 1, "the peer should be deleted as well");
    Ok(())
}

/// A lab without IPv6 has no IPv6 addresses, not even link-local ones.
pub(crate) fn a_lab_without_ipv6_has_none() -> Result<()> {
    let lab = Lab::new(&LabConfig { ipv6: false, ..LabConfig::default() })?;
    for host in lab.hosts() {
        let addresses = host.netlink()?.addresses()?;
        ensure!(addresses.iter().all(|entry| entry.prefix.address().is_ipv4()), "{addresses:?}");
        ensure!(host.first_interface().ipv6.is_none());
    }
    Ok(())
}

/// Creation and removal of a lab change no interface, address or setting of the machine.
pub(crate) fn host_settings_stay_unchanged() -> Result<()> {
    let before = host_settings()?;
    let lab = Lab::new(&LabConfig::default())?;
    ensure!(host_settings()? == before, "making a lab changed the machine");
    let setting = "/proc/sys/net/ipv6/conf/all/accept_ra";
    let inside = lab.server().run(|| fs::read_to_string(setting))??;
    ensure!(inside.trim() == "0", "{setting} is {inside}");
    drop(lab);
    ensure!(host_settings()? == before, "dropping a lab changed the machine");
    Ok(())
}

fn host_settings() -> Result<Vec<String>> {
    let mut netlink = Netlink::open()?;
    let mut facts: Vec<String> = netlink
        .links()?
        .iter()
        .map(|link| format!("{} {} {} {:?}", link.index, link.name, link.up, link.mac))
        .collect();
    facts.extend(netlink.addresses()?.iter().map(|entry| format!("{entry:?}")));
    for setting in ["ipv4/ip_forward", "ipv4/conf/all/rp_filter", "ipv6/conf/all/accept_ra"] {
        facts.push(fs::read_to_string(format!("/proc/sys/net/{setting}"))?);
    }
    Ok(facts)
}

/// A named lab is created, listed, used and removed; processes in it are reported and continue to
/// run.
pub(crate) fn a_named_lab_is_created_and_removed() -> Result<()> {
    let lab = NamedLab::new("round-trip");
    horolog_lab::create_lab(&lab.0, &LabConfig::default())?;
    let listed = lab.find()?.context("not listed")?;
    ensure!(listed.is_complete() && listed.hosts == ["client", "server"], "{listed:?}");

    let mut command = horolog_lab::host_command(&lab.0, "client", "sh")?;
    let status = command.args(["-c", "grep -q veth0: /proc/net/dev && exit 7"]).status()?;
    ensure!(status.code() == Some(7), "{status}");
    let executed = helper_command(&["exec", &lab.0, "sh", "-c", "kill -TERM $$"])?.status()?;
    ensure!(executed.signal() == Some(SIGTERM), "exec must replace the process: {executed}");
    let no_host = horolog_lab::host_command(&lab.0, "router", "true").map(drop);
    ensure!(matches!(no_host, Err(LabError::NoSuchHost { .. })), "{no_host:?}");

    let mut sleep = horolog_lab::host_command(&lab.0, "server", "sleep")?;
    let mut sleep = KilledOnDrop(die_with_parent(sleep.arg("60")).spawn()?);
    let downed = horolog_lab::remove_lab(&lab.0)?;
    ensure!(downed.hosts == ["client", "server"], "{downed:?}");
    let inside: Vec<u32> = downed.processes.iter().map(|process| process.pid).collect();
    ensure!(inside == [sleep.0.id()], "{downed:?}");
    ensure!(sleep.0.try_wait()?.is_none(), "removal killed a process");
    ensure!(lab.find()?.is_none(), "still listed");
    let again = horolog_lab::remove_lab(&lab.0);
    ensure!(matches!(again, Err(LabError::NotFound(_))), "{again:?}");
    Ok(())
}

/// A second lab of the same name is refused with a hint, and the first stays complete.
pub(crate) fn a_duplicate_lab_name_is_refused() -> Result<()> {
    let lab = NamedLab::new("twice");
    horolog_lab::create_lab(&lab.0, &LabConfig::default())?;
    let Err(error) = horolog_lab::create_lab(&lab.0, &LabConfig::default()) else {
        bail!("a second lab called {} was made", lab.0);
    };
    let wanted = format!("lab '{0}' exists already; 'horolog lab down {0}' removes it", lab.0);
    ensure!(error.to_string() == wanted, "{error}");
    ensure!(horolog_lab::host_command(&lab.0, "server", "true")?.status()?.success());
    Ok(())
}

/// A lab that a crash left incomplete is listed as such, blocks creation of its name, and can be
/// removed.
pub(crate) fn a_partial_lab_is_removed() -> Result<()> {
    let lab = NamedLab::new("half");
    horolog_lab::create_lab(&lab.0, &LabConfig { hosts: 3, ..LabConfig::default() })?;
    for host in ["client", "server"] {
        delete_named(&format!("horolog-{}-{host}", lab.0))?;
    }
    // State of a process that ended between creation of the file and mount of the namespace.
    let unmounted = PathBuf::from(format!("/run/netns/horolog-{}-server3", lab.0));
    fs::write(&unmounted, "")?;
    let left = lab.find()?.context("not listed")?;
    ensure!(!left.is_complete() && left.hosts == ["server2", "server3"], "{left:?}");
    let again = horolog_lab::create_lab(&lab.0, &LabConfig::default());
    ensure!(matches!(again, Err(LabError::Exists(_))), "{again:?}");
    let entered = horolog_lab::host_command(&lab.0, "server3", "true").map(drop);
    ensure!(entered.is_err(), "entered a file that is not a namespace");
    let downed = horolog_lab::remove_lab(&lab.0)?;
    ensure!(downed.hosts == left.hosts && !unmounted.exists(), "{downed:?}");
    ensure!(lab.find()?.is_none(), "something was left");
    Ok(())
}

/// SIGINT during creation of a lab leaves nothing; while names are assigned, it leaves a complete
/// lab or nothing.
pub(crate) fn an_interrupted_up_leaves_no_partial_lab() -> Result<()> {
    const ATTEMPTS: usize = 5;
    let lab = NamedLab::new("interrupted");
    // The largest lab takes long enough to name for a signal in between.
    let hosts = HOSTS_MAX.to_string();
    for while_naming in [false, true] {
        for _ in 0..ATTEMPTS {
            let mut child = KilledOnDrop(helper_command(&["up", &lab.0, &hosts])?.spawn()?);
            if while_naming {
                let started = Instant::now();
                while lab.find()?.is_none() {
                    ensure!(started.elapsed() < TIMEOUT, "no name was assigned");
                }
            } else {
                thread::sleep(POLL_INTERVAL);
            }
            // The child may have ended by itself, but its PID is valid until it is reaped.
            signal(&child.0, "INT")?;
            child.0.wait()?;
            let left = lab.find()?.map_or(0, |left| left.hosts.len());
            // Creation may have completed before the signal.
            ensure!(left == 0 || left == HOSTS_MAX, "{left} hosts were left");
            if left > 0 {
                horolog_lab::remove_lab(&lab.0)?;
            }
        }
    }
    Ok(())
}

/// SIGKILL of a process with an anonymous lab leaves no namespace and no interface, even while a
/// program runs in the lab.
pub(crate) fn a_killed_holder_leaves_nothing() -> Result<()> {
    // The holder connects a veth from this namespace to each of its hosts. A veth disappears with
    // the namespace of its peer, so the remaining ones show whether the hosts are removed.
    let watch = NetNs::anonymous()?;
    let mut command = helper_command(&["hold"])?;
    let child = watch.start_inside(&mut command).stdout(Stdio::piped()).spawn()?;
    let mut child = KilledOnDrop(child);
    let stdout = child.0.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    ensure!(line == "ready\n", "the holder printed {line:?}");
    let mut netlink = watch.run(Netlink::open)??;
    ensure!(netlink.links()?.len() == 3, "lo and two watched interfaces expected");
    child.0.kill()?;
    child.0.wait()?;
    let started = Instant::now();
    while netlink.links()?.len() > 1 {
        ensure!(started.elapsed() < TIMEOUT, "the hosts outlived their holder");
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

fn helper_command(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    die_with_parent(command.arg(HELPER).args(arguments));
    Ok(command)
}

/// Executes a helper action: creates a named lab (`up NAME HOSTS`), holds an anonymous lab
/// (`hold`), executes a program on the client host of a named lab (`exec NAME PROGRAM...`), or
/// relays (`relay INTERFACE INDEX`).
pub(crate) fn helper(arguments: &[String]) -> Result<()> {
    match arguments {
        [action, name, hosts] if action == "up" => {
            horolog_lab::create_lab(
                name,
                &LabConfig { hosts: hosts.parse()?, ..LabConfig::default() },
            )?;
            Ok(())
        }
        [action] if action == "hold" => match hold_lab()? {},
        [action, name, index] if action == RELAY_HELPER => {
            xdp_relay_changes::hold_relay(name, index)
        }
        [action, name, argv @ ..] if action == "exec" => {
            let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
            match horolog_lab::exec_in_host(name, "client", &argv)? {}
        }
        other => bail!("unknown helper {other:?}"),
    }
}

fn hold_lab() -> Result<Infallible> {
    let lab = Lab::new(&LabConfig::default())?;
    let mut netlink = Netlink::open()?;
    for host in lab.hosts() {
        let end = |name: String| VethEndConfig { name, mac: None };
        netlink.create_veth(&VethPairConfig {
            local: end(format!("watch-{}", host.name)),
            peer: end("watched".to_owned()),
            peer_namespace: host.netns.as_fd(),
            queues: 1,
        })?;
    }
    let _program = die_with_parent(lab.server().command("sleep").arg("600")).spawn()?;
    println!("ready");
    loop {
        thread::park();
    }
}

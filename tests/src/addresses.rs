//! Scenarios of addresses: a kernel without IPv6, as in a container or with `ipv6.disable=1`, and
//! link-local addresses with the zone of their interface.

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde_json::json;
use tempfile::TempDir;

use crate::load_command::StartedProgram;
use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end};
use crate::relay::{Relay, table};
use crate::scenario::Scenario;
use crate::server_nts::write_certificate;
use crate::{ROOT, ROOT_AND_IPV6, addresses, scenarios};

/// First argument by which this program executes another one without IPv6.
pub(crate) const WITHOUT_IPV6: &str = "without-ipv6";
/// System call number of socket(2).
const SOCKET: i64 = if cfg!(target_arch = "x86_64") { 41 } else { 198 };
const AF_INET6: u64 = 10;
const EAFNOSUPPORT: u32 = 97;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(ROOT, addresses: listeners_work_without_ipv6));
    all.extend(scenarios!(ROOT_AND_IPV6, addresses: link_local_addresses_have_zones));
    all
}

/// Executes a program that cannot open IPv6 sockets.
pub(crate) fn exec_without_ipv6(words: &[String]) -> Result<()> {
    let (program, rest) = words.split_first().context("no program")?;
    seccompiler::apply_filter(&filter()?)?;
    Err(Command::new(program).args(rest).exec().into())
}

fn filter() -> Result<BpfProgram> {
    let family = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, AF_INET6)?;
    let rules = [(SOCKET, vec![SeccompRule::new(vec![family])?])].into_iter().collect();
    let refused = SeccompAction::Errno(EAFNOSUPPORT);
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refused, env::consts::ARCH.try_into()?)?;
    Ok(filter.try_into()?)
}

fn command_without_ipv6(host: &LabHost) -> Result<Command> {
    let mut command = host.command(env::current_exe()?);
    command.arg(WITHOUT_IPV6);
    Ok(command)
}

fn output_without_ipv6(host: &LabHost, arguments: &[&str]) -> Result<Output> {
    run_to_end(command_without_ipv6(host)?.arg(binary()?).args(arguments), TIMEOUT)
}

/// Checks that listeners without a configured address use IPv4 only, with one notice, and that a
/// configured IPv6 address is an error with an explanation.
pub(crate) fn listeners_work_without_ipv6() -> Result<()> {
    const MISSING: &str = "IPv6 is not available";
    let lab = Lab::new(&LabConfig::default())?;
    let (host, files) = (lab.server(), TempDir::new()?);
    let own = host.first_interface().ipv4.to_string();
    let [certificate, key] = write_certificate(host.first_interface().ipv4.into(), files.path())?;
    let nts = ["--nts-cert", &certificate.to_string_lossy(), "--nts-key", &key.to_string_lossy()];
    let more = ["--local", "--metrics", "127.0.0.1:9123", "--ptp", &host.first_interface().name];
    let server = Server::start_through(
        command_without_ipv6(host)?,
        Engine::Socket,
        &[],
        &[&more[..], &nts[..]].concat(),
    )?;
    let status = server.status()?;
    ensure!(status["listen"] == json!(["0.0.0.0:123"]), "{}", status["listen"]);
    ensure!(status["nts_ke"]["listen"] == json!(["0.0.0.0:4460"]), "{}", status["nts_ke"]);
    for target in [&*own, "[2001:db8::2]"] {
        let output =
            output_without_ipv6(lab.client(), &["query", target, "-n", "2", "--interval", "10ms"])?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success() == (target == own), "{target}: {output:?}");
        ensure!(!stderr.contains("os error"), "{stderr}");
    }
    let ended = server.end("TERM")?;
    ensure!(ended.stderr.matches(MISSING).count() == 1, "expected one notice: {}", ended.stderr);

    let token = files.path().join("token");
    crate::process::write_secret(&token, "0123456789abcdef0123456789abcdef")?;
    let token = token.to_string_lossy().into_owned();
    let relay = files.path().join("relay.toml");
    fs::write(&relay, table((host.first_interface().ipv4, 5_000), &["192.0.2.1:5001".parse()?]))?;
    let socket = files.path().join("control.sock").to_string_lossy().into_owned();
    let relay = relay.to_string_lossy().into_owned();
    for (arguments, ready, notices) in [
        (&["path", "serve", "--stamp"][..], "path far end", 1),
        (&["counters", "--listen", "127.0.0.1:9124", "--token-file", &token], "counters at", 0),
        (&["relay", "run", "--config", &relay, "--socket", &socket], "relaying", 0),
    ] {
        let mut started =
            StartedProgram::start(command_without_ipv6(host)?.arg(binary()?).args(arguments))?;
        started.wait_until(|_, stderr| stderr.contains(ready)).with_context(|| ready)?;
        started.signal("TERM")?;
        ensure!(started.end()?.0.success(), "{arguments:?}");
        let stderr = started.read("stderr")?;
        ensure!(stderr.matches(MISSING).count() == notices, "{arguments:?}: {stderr}");
    }
    let named: [&[&str]; 3] = [
        &["serve", "--local", "--listen", "[::1]:4123"],
        &["path", "serve", "--listen", "::1"],
        &["counters", "--listen", "[::1]:9124", "--token-file", &token],
    ];
    for arguments in named {
        let refused = output_without_ipv6(host, arguments)?;
        let stderr = String::from_utf8_lossy(&refused.stderr);
        ensure!(refused.status.code() == Some(3), "{arguments:?}: {refused:?}");
        ensure!(stderr.contains("IPv6 may be disabled"), "{arguments:?}: {stderr}");
        ensure!(!stderr.contains("os error") && stderr.lines().count() == 1, "{stderr}");
    }
    Ok(())
}

/// Returns the link-local address of a host, which the kernel assigned.
fn link_local(host: &LabHost) -> Result<Ipv6Addr> {
    let own = host.netlink()?.addresses()?.into_iter();
    let on_link = own.filter(|own| own.index == host.first_interface().index);
    let found = on_link.map(|own| own.prefix.address()).find_map(|address| match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => Some(v6),
        _ => None,
    });
    found.context("no link-local address")
}

/// Checks that each command that sends reaches a link-local address by the name and by the index of
/// the interface, and that each one that listens can bind to it.
pub(crate) fn link_local_addresses_have_zones() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let (server, client) = (lab.server(), lab.client());
    let (at, near) = (link_local(server)?, link_local(client)?);
    let (zone, own) = (&client.first_interface().name, &server.first_interface().name);
    let listen = format!("[{at}%{own}]:123");
    let other = format!("[{at}%{}]:4123", server.first_interface().index);
    let serving = Server::start_without_local(
        server,
        Engine::Socket,
        &[],
        &["--local", "-l", &listen, "-l", &other],
    )?;
    let run = |arguments: &[&str]| -> Result<Output> {
        run_to_end(client.command(binary()?).args(arguments), TIMEOUT)
    };
    let succeeds = |arguments: &[&str]| -> Result<()> {
        let output = run(arguments)?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(())
    };
    let index = client.first_interface().index;
    for target in [
        format!("{at}%{zone}"),
        format!("[{at}%{zone}]"),
        format!("[{at}%{index}]:4123"),
        format!("{at}%{zone}:4123"),
    ] {
        succeeds(&["query", &target, "-n", "2", "--interval", "10ms"])?;
    }
    let target = format!("{at}%{zone}");
    succeeds(&["load", "ntp", &target, "--engine", "udp", "-r", "200", "-t", "200ms"])?;
    for unknown in [format!("{at}%nowhere"), format!("[{at}%4294967295]:123")] {
        for command in [&["query", &unknown][..], &["load", "ntp", &unknown, "-r", "1"]] {
            let refused = run(command)?;
            let stderr = String::from_utf8_lossy(&refused.stderr);
            ensure!(refused.status.code() == Some(3), "{command:?}: {refused:?}");
            ensure!(stderr.contains("does not exist on this host"), "{command:?}: {stderr}");
            ensure!(stderr.lines().count() == 1, "{command:?}: {stderr}");
        }
    }
    serving.end("TERM")?;

    let far_at = format!("{at}%{own}");
    let mut far =
        StartedProgram::start(server.command(binary()?).args(["path", "serve", "-l", &far_at]))?;
    far.wait_until(|_, stderr| stderr.contains("path far end"))?;
    for kind in ["udp", "tcp"] {
        succeeds(&["path", kind, &target, "-t", "200ms"]).with_context(|| kind)?;
    }
    check_relay(&lab, near)
}

/// Checks that a child of a relay may have a link-local address.
fn check_relay(lab: &Lab, near: Ipv6Addr) -> Result<()> {
    let (server, index) = (lab.server(), lab.client().first_interface().index);
    let child = lab.client().run(|| -> Result<UdpSocket> {
        let socket = UdpSocket::bind(SocketAddrV6::new(near, 5_001, 0, index))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(socket)
    })??;
    let ipv6 = |host: &LabHost| host.first_interface().ipv6.context("no IPv6 address");
    let group = SocketAddr::from((ipv6(server)?, 5_000));
    let to = format!("\"[{near}%{}]:5001\"", server.first_interface().name);
    let table = table(group, &[]).replace("children = []", &format!("children = [{to}]"));
    let table = table.replacen("destinations = [", "destinations = [\"fe80::/10\", ", 1);
    let _relay = Relay::start(server, &table, &["--engine", "sendmmsg"])?;
    let own = ipv6(lab.client())?;
    let sender = lab.client().run(|| UdpSocket::bind((own, 0)))??;
    sender.send_to(b"by the link", group)?;
    let mut bytes = [0; 16];
    let (length, _) = child.recv_from(&mut bytes).context("no copy received")?;
    ensure!(&bytes[..length] == b"by the link", "{bytes:?}");
    Ok(())
}

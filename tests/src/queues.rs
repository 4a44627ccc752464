//! Scenarios of the `AF_XDP` sockets by which the server's XDP body hands requests over.

use anyhow::{Result, ensure};
use horolog_lab::{Host, Lab, LabConfig};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::frame::Builder;
use horolog_wire::ntp::HEADER_LEN;
use horolog_xdp::{Interface, Responder, ResponderSettings, Verdict, XskSocket};

use crate::frames::{LISTEN, build};

fn interface(host: &Host) -> Interface {
    Interface { index: host.port().index, name: host.port().interface.clone() }
}

/// A program that hands requests with more than a header over to so many queues.
fn responder(queues: u32) -> Result<Responder> {
    let settings = ResponderSettings { handed_over_queues: queues, ..ResponderSettings::PLAIN };
    Ok(Responder::load(&settings)?.0)
}

/// A client's request with so many bytes behind its header.
fn long_request(more: usize) -> Vec<u8> {
    let mut request = vec![0; HEADER_LEN + more];
    request[0] = 0x23;
    request
}

/// A request that came in by a queue that has no socket goes up; it is not given to a socket of
/// another interface, whose row comes next.
pub(crate) fn a_queue_beyond_those_served_goes_up() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let host = lab.server();
    let responder = responder(2)?;
    LISTEN.into_iter().try_for_each(|address| responder.listen(address))?;
    let builder = Builder {
        destination_mac: MacAddress([2, 0, 192, 0, 2, 2]),
        source_mac: MacAddress([2, 0, 192, 0, 2, 1]),
        vlan: None,
        source: "10.0.0.1:40000".parse()?,
        destination: LISTEN[0],
    };
    let request = build(&builder, &long_request(20));
    // A test run's frame comes in by queue 0 of the loopback interface.
    let verdict = || -> Result<Verdict> { Ok(host.run(|| responder.test_run(&request))??.verdict) };
    ensure!(verdict()? == Verdict::Pass, "nothing is handed over yet");
    let loopback = Interface { index: 1, name: "lo".to_owned() };
    let [own, other] = [&loopback, &interface(host)].map(|at| host.run(|| XskSocket::open(at, 0)));
    let (own, other) = (own??, other??);
    responder.hand_over(&loopback, &[], 0)?;
    responder.hand_over(&interface(host), std::slice::from_ref(&other), 0)?;
    ensure!(verdict()? == Verdict::Pass, "it was given to another interface's socket");
    responder.hand_over(&loopback, std::slice::from_ref(&own), 1)?;
    ensure!(verdict()? == Verdict::Redirect, "it was not given to its own");
    Ok(())
}

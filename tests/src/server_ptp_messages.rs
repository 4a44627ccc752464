//! Scenario of PTP messages as sent by clients of several vendors and versions, over IPv4 and IPv6:
//! responses go to the port that the standard requires (IEEE 1588-2019, annexes C.2 and D.2), and
//! refused messages are counted.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT, Message, MessageType};

use crate::ROOT_AND_IPV6;
use crate::process::{Engine, TIMEOUT, server_address, wait_until};
use crate::scenario::{Scenario, scenario};
use crate::server_ptp::{await_state, port, start_grandmaster};

/// Time in which an unexpected response would arrive.
const QUIET_PERIOD: Duration = Duration::from_millis(100);

pub(crate) fn all() -> Vec<Scenario> {
    let of = |engine: Engine| {
        let title =
            format!("server_ptp_messages::responses_go_to_the_right_port::{}", engine.name());
        scenario(title, ROOT_AND_IPV6, move || responses_go_to_the_right_port(engine))
    };
    Engine::ALL.map(of).into()
}

/// Expected response to a message.
#[derive(Clone, Copy)]
enum ExpectedResponse {
    /// A response of this type at the port of general messages.
    General(MessageType),
    /// A response at the port of the requester.
    Requester,
    /// No response, but a refusal counted under this name.
    Nothing(&'static str),
}

struct MessageForm {
    name: &'static str,
    expected: ExpectedResponse,
    kind: u8,
    version: u8,
    domain: u8,
    flags: u16,
    /// Bytes after the header.
    body: &'static [u8],
    /// Number of zero bytes after the message.
    padding: usize,
}

const fn form(
    name: &'static str,
    due: ExpectedResponse,
    kind: u8,
    body: &'static [u8],
) -> MessageForm {
    MessageForm { name, expected: due, kind, version: 0x02, domain: 0, flags: 0, body, padding: 0 }
}

const DELAY_RESP: ExpectedResponse = ExpectedResponse::General(MessageType::DelayResp);
const GRANT: ExpectedResponse = ExpectedResponse::General(MessageType::Signaling);
const ALL_PORTS: [u8; 10] = [0xff; 10];

/// Returns a body that begins with the target of all ports.
const fn to_all_ports<const N: usize>(rest: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.split_at_mut(ALL_PORTS.len()).0.copy_from_slice(&ALL_PORTS);
    bytes.split_at_mut(ALL_PORTS.len()).1.split_at_mut(rest.len()).0.copy_from_slice(rest);
    bytes
}

const FORMS: [MessageForm; 19] = [
    form("delay", DELAY_RESP, 1, &[0; 10]),
    MessageForm { version: 0x12, ..form("delay, version 2.1", DELAY_RESP, 1, &[0; 10]) },
    MessageForm { flags: 0x2400, ..form("delay, SPTP", DELAY_RESP, 1, &[0; 10]) },
    MessageForm { padding: 10, ..form("delay, padded", DELAY_RESP, 1, &[0; 10]) },
    form(
        "delay, odd TLV",
        ExpectedResponse::Nothing("length"),
        1,
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 2, 0, 3, 0, 0, 0],
    ),
    MessageForm {
        flags: 0x0400,
        ..form(
            "delay, CSPTP",
            DELAY_RESP,
            1,
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 4, 0, 0, 0, 1],
        )
    },
    form("delay, another organisation", ExpectedResponse::Nothing("domain"), 0x11, &[0; 10]),
    MessageForm {
        domain: 127,
        ..form("delay, another domain", ExpectedResponse::Nothing("domain"), 1, &[0; 10])
    },
    MessageForm {
        version: 0x01,
        ..form("delay, version 1", ExpectedResponse::Nothing("version"), 0, &[0; 90])
    },
    form(
        "default data set",
        ExpectedResponse::Requester,
        13,
        &to_all_ports::<20>(&[0, 0, 0, 0, 0, 1, 0, 2, 0x20, 0]),
    ),
    MessageForm {
        version: 0x12,
        ..form(
            "default data set, version 2.1",
            ExpectedResponse::Requester,
            13,
            &to_all_ports::<20>(&[0, 0, 0, 0, 0, 1, 0, 2, 0x20, 0]),
        )
    },
    form(
        "default data set, with room",
        ExpectedResponse::Requester,
        13,
        &to_all_ports::<40>(&[0, 0, 0, 0, 0, 1, 0, 22, 0x20, 0]),
    ),
    form(
        "time",
        ExpectedResponse::Requester,
        13,
        &to_all_ports::<20>(&[0, 0, 0, 0, 0, 1, 0, 2, 0x20, 0x0f]),
    ),
    form(
        "unknown identifier",
        ExpectedResponse::Requester,
        13,
        &to_all_ports::<20>(&[0, 0, 0, 0, 0, 1, 0, 2, 0xc1, 0x23]),
    ),
    form(
        "first rank set",
        ExpectedResponse::Requester,
        13,
        &to_all_ports::<22>(&[0, 0, 1, 0, 0, 1, 0, 4, 0x20, 5, 0, 0]),
    ),
    form("announces", GRANT, 12, &to_all_ports::<20>(&[0, 4, 0, 6, 0xb0, 1, 0, 0, 1, 44])),
    form(
        "announces, impossible interval",
        GRANT,
        12,
        &to_all_ports::<20>(&[0, 4, 0, 6, 0xb0, 127, 0, 0, 1, 44]),
    ),
    form(
        "announces for no time",
        GRANT,
        12,
        &to_all_ports::<20>(&[0, 4, 0, 6, 0xb0, 1, 0, 0, 0, 0]),
    ),
    form(
        "announces for ever",
        GRANT,
        12,
        &to_all_ports::<20>(&[0, 4, 0, 6, 0xb0, 1, 0xff, 0xff, 0xff, 0xff]),
    ),
];

impl MessageForm {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 34];
        let len = (bytes.len() + self.body.len()) as u16;
        (bytes[0], bytes[1], bytes[4]) = (self.kind, self.version, self.domain);
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.flags.to_be_bytes());
        bytes[20..28].copy_from_slice(&0x0011_2233_4455_6677_u64.to_be_bytes());
        (bytes[29], bytes[33]) = (1, 0x7f);
        bytes.extend(self.body);
        bytes.resize(bytes.len() + self.padding, 0);
        bytes
    }
}

/// Sockets of a client: one for general messages, and one with any port.
struct PtpClient {
    general: UdpSocket,
    requesting: UdpSocket,
}

impl PtpClient {
    fn new(lab: &Lab, own: IpAddr) -> Result<Self> {
        let bind = |port| -> Result<UdpSocket> {
            let socket = lab.client().run(|| UdpSocket::bind((own, port)))??;
            socket.set_read_timeout(Some(TIMEOUT))?;
            Ok(socket)
        };
        Ok(Self { general: bind(GENERAL_PORT)?, requesting: bind(0)? })
    }

    fn query(&self, form: &MessageForm, at: IpAddr) -> Result<()> {
        let request = form.bytes();
        let is_event = form.kind & 0xf < 8;
        let to = SocketAddr::new(at, if is_event { EVENT_PORT } else { GENERAL_PORT });
        self.requesting.send_to(&request, to)?;
        let (socket, kind) = match form.expected {
            ExpectedResponse::General(kind) => (&self.general, kind),
            ExpectedResponse::Requester => (&self.requesting, MessageType::Management),
            ExpectedResponse::Nothing(_) => return Ok(()),
        };
        let mut buffer = [0; 1_024];
        let (len, from) = socket.recv_from(&mut buffer).context("no response")?;
        ensure!(from == SocketAddr::new(at, GENERAL_PORT), "a response from {from}");
        let (message, _) = Message::parse(&buffer[..len])?;
        ensure!(message.kind() == Some(kind), "{message:?}");
        Ok(())
    }

    fn check_no_further_response(&self) -> Result<()> {
        for socket in [&self.general, &self.requesting] {
            socket.set_read_timeout(Some(QUIET_PERIOD))?;
            let more = socket.recv_from(&mut [0; 1_024]);
            ensure!(more.is_err(), "more than one response: {more:?}");
        }
        Ok(())
    }
}

fn responses_go_to_the_right_port(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let transports = ["--ptp-transport", "udp4,udp6"];
    let server = start_grandmaster(&lab, engine, &transports)?;
    await_state(&server, "master")?;
    let own = lab.client().first_interface();
    let ends = [
        (own.ipv4.into(), server_address(&lab, false)?.ip()),
        (own.ipv6.context("no IPv6 address")?.into(), server_address(&lab, true)?.ip()),
    ];
    for (own, at) in ends {
        let client = PtpClient::new(&lab, own)?;
        for form in &FORMS {
            client.query(form, at).with_context(|| format!("{}, {at}", form.name))?;
        }
        client.check_no_further_response()?;
    }
    // A port publishes its counts periodically.
    wait_until("refused messages are counted", || {
        let refused = port(&server)?["refused"].clone();
        let is_counted = |form: &MessageForm| match form.expected {
            ExpectedResponse::Nothing(reason) => refused[reason].as_u64() >= Some(1),
            _ => true,
        };
        Ok(FORMS.iter().all(is_counted))
    })?;
    ensure!(port(&server)?["state"] == "master", "{}", port(&server)?);
    Ok(())
}

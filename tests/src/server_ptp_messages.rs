//! A scenario of PTP messages in the forms in which clients of several makes and versions send
//! them, over both families: responses go to the port that the standard requires (IEEE 1588-2019,
//! annexes C.2 and D.2), and the rest is counted.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT, Message, MessageType};
use libtest_mimic::Trial;

use crate::ROOT_AND_IPV6;
use crate::process::{Engine, TIMEOUT, server_address};
use crate::relay::eventually;
use crate::scenario::scenario;
use crate::server_ptp::{await_state, port, start};

/// Long enough for an answer that must not come to show itself.
const QUIET_PERIOD: Duration = Duration::from_millis(100);

/// It, for each engine.
pub(crate) fn all() -> Vec<Trial> {
    let of = |engine: Engine| {
        let title =
            format!("server_ptp_messages::responses_go_to_the_right_port::{}", engine.name());
        scenario(title, ROOT_AND_IPV6, move || responses_go_to_the_right_port(engine))
    };
    Engine::ALL.map(of).into()
}

/// What becomes of a message.
#[derive(Clone, Copy)]
enum Expected {
    /// An answer of this type at the port of general messages.
    General(MessageType),
    /// An answer at the port that asked.
    Requester,
    /// Nothing, counted under this name.
    Nothing(&'static str),
}

struct Form {
    name: &'static str,
    due: Expected,
    kind: u8,
    version: u8,
    domain: u8,
    flags: u16,
    /// Behind the header.
    body: &'static [u8],
    /// Behind the message.
    padding: usize,
}

const fn form(name: &'static str, due: Expected, kind: u8, body: &'static [u8]) -> Form {
    Form { name, due, kind, version: 0x02, domain: 0, flags: 0, body, padding: 0 }
}

const DELAY_RESP: Expected = Expected::General(MessageType::DelayResp);
const GRANT: Expected = Expected::General(MessageType::Signaling);
const ALL_PORTS: [u8; 10] = [0xff; 10];

/// A body that asks all ports.
const fn to_all<const N: usize>(rest: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.split_at_mut(ALL_PORTS.len()).0.copy_from_slice(&ALL_PORTS);
    bytes.split_at_mut(ALL_PORTS.len()).1.split_at_mut(rest.len()).0.copy_from_slice(rest);
    bytes
}

const FORMS: [Form; 19] = [
    form("delay", DELAY_RESP, 1, &[0; 10]),
    Form { version: 0x12, ..form("delay, version 2.1", DELAY_RESP, 1, &[0; 10]) },
    Form { flags: 0x2400, ..form("delay, SPTP", DELAY_RESP, 1, &[0; 10]) },
    Form { padding: 10, ..form("delay, padded", DELAY_RESP, 1, &[0; 10]) },
    form(
        "delay, odd TLV",
        Expected::Nothing("length"),
        1,
        &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 2, 0, 3, 0, 0, 0],
    ),
    Form {
        flags: 0x0400,
        ..form(
            "delay, CSPTP",
            DELAY_RESP,
            1,
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 4, 0, 0, 0, 1],
        )
    },
    form("delay, another organisation", Expected::Nothing("domain"), 0x11, &[0; 10]),
    Form { domain: 127, ..form("delay, another domain", Expected::Nothing("domain"), 1, &[0; 10]) },
    Form { version: 0x01, ..form("delay, version 1", Expected::Nothing("version"), 0, &[0; 90]) },
    form(
        "default data set",
        Expected::Requester,
        13,
        &to_all::<20>(&[0, 0, 0, 0, 0, 1, 0, 2, 0x20, 0]),
    ),
    Form {
        version: 0x12,
        ..form(
            "default data set, version 2.1",
            Expected::Requester,
            13,
            &to_all::<20>(&[0, 0, 0, 0, 0, 1, 0, 2, 0x20, 0]),
        )
    },
    form(
        "default data set, with room",
        Expected::Requester,
        13,
        &to_all::<40>(&[0, 0, 0, 0, 0, 1, 0, 22, 0x20, 0]),
    ),
    form("time", Expected::Requester, 13, &to_all::<20>(&[0, 0, 0, 0, 0, 1, 0, 2, 0x20, 0x0f])),
    form(
        "unknown identifier",
        Expected::Requester,
        13,
        &to_all::<20>(&[0, 0, 0, 0, 0, 1, 0, 2, 0xc1, 0x23]),
    ),
    form(
        "first rank set",
        Expected::Requester,
        13,
        &to_all::<22>(&[0, 0, 1, 0, 0, 1, 0, 4, 0x20, 5, 0, 0]),
    ),
    form("announces", GRANT, 12, &to_all::<20>(&[0, 4, 0, 6, 0xb0, 1, 0, 0, 1, 44])),
    form(
        "announces, impossible interval",
        GRANT,
        12,
        &to_all::<20>(&[0, 4, 0, 6, 0xb0, 127, 0, 0, 1, 44]),
    ),
    form("announces for no time", GRANT, 12, &to_all::<20>(&[0, 4, 0, 6, 0xb0, 1, 0, 0, 0, 0])),
    form(
        "announces for ever",
        GRANT,
        12,
        &to_all::<20>(&[0, 4, 0, 6, 0xb0, 1, 0xff, 0xff, 0xff, 0xff]),
    ),
];

impl Form {
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

/// The sockets of a client: that of general messages, and one with any port.
struct Client {
    general: UdpSocket,
    requesting: UdpSocket,
}

impl Client {
    fn new(lab: &Lab, own: IpAddr) -> Result<Self> {
        let bind = |port| -> Result<UdpSocket> {
            let socket = lab.client().run(|| UdpSocket::bind((own, port)))??;
            socket.set_read_timeout(Some(TIMEOUT))?;
            Ok(socket)
        };
        Ok(Self { general: bind(GENERAL_PORT)?, requesting: bind(0)? })
    }

    fn query(&self, form: &Form, at: IpAddr) -> Result<()> {
        let request = form.bytes();
        let event = form.kind & 0xf < 8;
        let to = SocketAddr::new(at, if event { EVENT_PORT } else { GENERAL_PORT });
        self.requesting.send_to(&request, to)?;
        let (socket, kind) = match form.due {
            Expected::General(kind) => (&self.general, kind),
            Expected::Requester => (&self.requesting, MessageType::Management),
            Expected::Nothing(_) => return Ok(()),
        };
        let mut buffer = [0; 1_024];
        let (len, from) = socket.recv_from(&mut buffer).context("no answer")?;
        ensure!(from == SocketAddr::new(at, GENERAL_PORT), "an answer from {from}");
        let (message, _) = Message::parse(&buffer[..len])?;
        ensure!(message.kind() == Some(kind), "{message:?}");
        Ok(())
    }

    fn no_further_reply(&self) -> Result<()> {
        for socket in [&self.general, &self.requesting] {
            socket.set_read_timeout(Some(QUIET_PERIOD))?;
            let more = socket.recv_from(&mut [0; 1_024]);
            ensure!(more.is_err(), "more than one answer: {more:?}");
        }
        Ok(())
    }
}

fn responses_go_to_the_right_port(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let transports = ["--ptp-transport", "udp4,udp6"];
    let server = start(&lab, engine, &transports)?;
    await_state(&server, "master")?;
    let own = lab.client().first_interface();
    let ends = [
        (own.ipv4.into(), server_address(&lab, false)?.ip()),
        (own.ipv6.context("no IPv6 address")?.into(), server_address(&lab, true)?.ip()),
    ];
    for (own, at) in ends {
        let client = Client::new(&lab, own)?;
        for form in &FORMS {
            client.query(form, at).with_context(|| format!("{}, {at}", form.name))?;
        }
        client.no_further_reply()?;
    }
    // A port publishes its counts now and then.
    eventually(|| {
        let refused = port(&server)?["refused"].clone();
        let is_counted = |form: &Form| match form.due {
            Expected::Nothing(reason) => refused[reason].as_u64() >= Some(1),
            _ => true,
        };
        Ok(FORMS.iter().all(is_counted))
    })?;
    ensure!(port(&server)?["state"] == "master", "{}", port(&server)?);
    Ok(())
}

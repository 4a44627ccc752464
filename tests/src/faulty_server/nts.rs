//! Faults of authenticated replies: the server has the keys and applies them incorrectly.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_load::mix::RequestMix;
use horolog_load::nts::NtsSessions;
use horolog_load::request_kind::NtsSessionSource;
use horolog_load::{LoadOptions, LoadRun};
use horolog_nts::{
    AeadAlgorithm, AuthenticRequest, CookieKeys, CookieMasterSecret, NonceStream,
    PAST_PERIODS_DEFAULT, ROTATION_DEFAULT, open_request, seal_reply, write_nak,
};
use horolog_record::{InvalidReplyReason, LoadEngineKind};
use horolog_sys::clock::ClockRealtime;
use horolog_time::Clock;
use horolog_wire::ntp::HEADER_LEN;
use horolog_wire::ntp::extension::{FIELD_LEN_MIN, PREFIX_LEN, field_len};

use super::{ExpectedFinding, check_result, reply_to};
use crate::ROOT;
use crate::faulty_responder::{FaultGroup, FaultyResponder};
use crate::load_accounting::options_at_rate;
use crate::process::server_address;
use crate::scenario::{Scenario, scenario};

pub(crate) fn all() -> Vec<Scenario> {
    let run = authentication_faults_are_counted;
    vec![scenario("faulty_server::authentication_faults_are_counted", ROOT, run)]
}

const SESSIONS: usize = 3;

/// Data from which a server makes a reply.
struct ReplyParts<'a> {
    keys: &'a CookieKeys,
    opened: AuthenticRequest<'a>,
    header: [u8; HEADER_LEN],
    nonces: &'a mut NonceStream,
}

impl ReplyParts<'_> {
    fn sealed_reply(&mut self) -> Vec<u8> {
        let mut reply = vec![0; 2_048];
        let Self { keys, opened, header, nonces } = self;
        let length = seal_reply(keys, opened, header, &mut |bytes| nonces.fill(bytes), &mut reply);
        reply.truncate(length);
        reply
    }

    fn changed_reply(&mut self, change: impl FnOnce(&mut Vec<u8>)) -> Vec<Vec<u8>> {
        let mut reply = self.sealed_reply();
        change(&mut reply);
        vec![reply]
    }
}

type FaultFn = fn(&mut ReplyParts<'_>) -> Vec<Vec<u8>>;

const NTS: ExpectedFinding = ExpectedFinding::Invalid(InvalidReplyReason::Nts);

const FAULTS: [(&str, ExpectedFinding, FaultFn); 9] = [
    ("a bit of the tag", NTS, |making| {
        making
            .changed_reply(|reply| reply.iter_mut().last().into_iter().for_each(|byte| *byte ^= 1))
    }),
    ("a bit of the header", NTS, |making| making.changed_reply(|reply| reply[1] ^= 2)),
    ("another unique identifier", NTS, |making| {
        let mut other = making.opened.unique_id.to_vec();
        other[0] ^= 1;
        let mut reply = making.sealed_reply();
        reply[HEADER_LEN + PREFIX_LEN..][..other.len()].copy_from_slice(&other);
        vec![reply]
    }),
    ("no extension fields", NTS, |making| vec![making.header.to_vec()]),
    ("no authenticator", NTS, |making| {
        let length = HEADER_LEN + field_len(making.opened.unique_id.len(), FIELD_LEN_MIN);
        making.changed_reply(|reply| reply.truncate(length))
    }),
    ("truncated", NTS, |making| making.changed_reply(|reply| reply.truncate(reply.len() - 4))),
    ("longer than the request", ExpectedFinding::Invalid(InvalidReplyReason::Length), |making| {
        let length = making.opened.request_len + 4;
        making.changed_reply(|reply| reply.resize(length, 0))
    }),
    ("kiss NTSN", ExpectedFinding::Invalid(InvalidReplyReason::KissNtsn), |making| {
        let mut kiss = vec![0; 256];
        let length = write_nak(making.opened.unique_id, &making.header, &mut kiss);
        kiss.truncate(length);
        vec![kiss]
    }),
    ("replayed", ExpectedFinding::Duplicate, |making| vec![making.sealed_reply(); 2]),
];

/// Starts a server that commits the faults in turn, at every second request.
fn start_server(
    lab: &Lab,
    at: SocketAddr,
    secret: &CookieMasterSecret,
    faults: &FaultGroup<ExpectedFinding, FaultFn>,
) -> Result<FaultyResponder> {
    let faults = faults.clone();
    let socket = lab.server().run(|| UdpSocket::bind(at))??;
    socket.set_read_timeout(Some(Duration::from_millis(10)))?;
    let keys = CookieKeys::new(secret, ROTATION_DEFAULT, PAST_PERIODS_DEFAULT, ClockRealtime.now());
    let mut nonces = NonceStream::new().map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(FaultyResponder::start(move |state| {
        let mut buffer = [0; 2_048];
        while state.is_running() {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
            let packet = &buffer[..length];
            let (Some(reply), Ok(opened)) = (reply_to(packet), open_request(&keys, packet)) else {
                continue;
            };
            let mut header = [0; HEADER_LEN];
            reply.emit(&mut header);
            let mut making = ReplyParts { keys: &keys, opened, header, nonces: &mut nonces };
            let wrong =
                faults.commit(state, state.count_request(), |commit| Some(commit(&mut making)));
            let replies = wrong.unwrap_or_else(|| vec![making.sealed_reply()]);
            for reply in replies {
                let _ = socket.send_to(&reply, from);
            }
        }
    }))
}

/// Covers both engines that support NTS, with sessions and cookie keys from one master secret.
pub(crate) fn authentication_faults_are_counted() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let mut wrong = Vec::new();
    for engine in [LoadEngineKind::Udp, LoadEngineKind::Packet] {
        for faults in FaultGroup::by_outcome(FAULTS) {
            let secret = CookieMasterSecret::generate()?;
            let server = start_server(&lab, at, &secret, &faults)?;
            let sessions = NtsSessions::from_master_secret(
                &secret,
                AeadAlgorithm::AesSivCmac256,
                SESSIONS,
                100,
            )?;
            let options = LoadOptions {
                engine: Some(engine),
                requests: RequestMix::only(NtsSessionSource::Existing(Arc::new(sessions))),
                threads: Some(1),
                reply_timeout: Duration::from_secs(1),
                ..options_at_rate(at, (1_000.0, Duration::from_millis(300)))?
            };
            let result = lab.client().run(move || LoadRun::prepare(options)?.run(&mut ()))??;
            let counts = server.end();
            let checked = check_result(&result, faults.outcome, counts)
                .and_then(|()| faults.check_all_committed(counts));
            wrong.extend(
                checked.err().map(|why| format!("{} by {engine:?}: {why:#}", faults.names())),
            );
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

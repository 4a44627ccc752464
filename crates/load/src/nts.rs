//! Authenticated requests (NTS, RFC 8915): sessions from key establishment, shared by all simulated
//! clients, requests sealed as they are sent, replies opened as they come.
//!
//! A request carries its token inside what is sealed, so it cannot be sealed before its instant.
//! Its unique identifier follows from the token, so nothing is kept of it until the reply. A cookie
//! is used again and again, which no client with a user would do: the server spends as much on it
//! as on a fresh one, and a lost reply costs the generator nothing.

use std::fmt;
use std::time::Duration;

use horolog_ke::{KeClient, KeError};
use horolog_nts::{
    COOKIE_LEN_MAX, ClientSession, CookieKeys, KEEP_DEFAULT, Nonces, ROTATION_DEFAULT, ReplyFault,
    RequestTemplate, SessionKeys, UNIQUE_ID_LEN, examine_reply,
};
use horolog_sys::clock::Realtime;
use horolog_time::Clock;
use thiserror::Error;

pub use horolog_ke::{PORT as KE_PORT, Trust};
pub use horolog_nts::{Algorithm, GivenError, GivenSession, MasterSecret, SecretError};

use crate::random::SplitMix64;
use crate::request::{self, Stamps};
use crate::target::{Family, TargetError, TargetName};

/// Sessions unless a number is asked for: enough that a server which works on several packets at
/// once meets several keys, and few enough that establishing them takes no time to speak of.
pub const SESSIONS: usize = 16;

/// The most sessions: each takes a TLS handshake of its own before the run.
pub const SESSIONS_MAX: usize = 4096;

/// How long one key establishment may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How requests are to be authenticated.
#[derive(Clone, Debug)]
pub struct NtsOptions {
    /// The server for key establishment.
    pub establishment: TargetName,
    /// The name that its certificate is for; `None` takes the one that it is called by.
    pub name: Option<String>,
    /// Whose certificates are trusted.
    pub trust: Trust,
    /// The AEAD algorithms to offer, the most wanted first.
    pub algorithms: Vec<Algorithm>,
    /// Sessions, from 1 to [`SESSIONS_MAX`].
    pub sessions: usize,
    /// How many requests in a hundred are authenticated, from 0 to 100.
    pub share: u8,
}

/// Why there are no sessions.
#[derive(Debug, Error)]
pub enum NtsError {
    /// The server for key establishment has no address.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// It gave no keys.
    #[error(transparent)]
    Establishment(#[from] KeError),
    /// It chose an algorithm and gave keys of another's length.
    #[error("the NTS-KE server's keys do not fit algorithm {0}")]
    Keys(u16),
    /// No random numbers for nonces.
    #[error("cannot read random numbers: {0}")]
    Random(String),
    /// A number of sessions that cannot be.
    #[error("the number of NTS sessions must be from 1 to {SESSIONS_MAX}, not {0}")]
    Sessions(usize),
    /// A share that is none.
    #[error("the share of authenticated requests must be from 0 to 100, not {0}")]
    Share(u8),
    /// NTS is for version 4.
    #[error("NTS is defined for NTP version 4 only, not for version {0}")]
    Version(u8),
    /// Modes that are not had together.
    #[error("NTS and interleaved mode cannot be loaded together; leave one of them out")]
    Interleaved,
}

impl NtsError {
    /// Whether other options would help.
    pub(crate) const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Sessions(_)
                | Self::Share(_)
                | Self::Version(_)
                | Self::Interleaved
                | Self::Establishment(KeError::NoTrust | KeError::BadName(_))
        )
    }
}

fn random(error: impl fmt::Display) -> NtsError {
    NtsError::Random(error.to_string())
}

fn check(sessions: usize, share: u8) -> Result<(), NtsError> {
    if !(1..=SESSIONS_MAX).contains(&sessions) {
        return Err(NtsError::Sessions(sessions));
    }
    if share > 100 { Err(NtsError::Share(share)) } else { Ok(()) }
}

/// The keys and cookies of a run.
pub struct Sessions {
    established: Vec<(SessionKeys, Vec<Vec<u8>>)>,
    share: u8,
    /// The servers' keys are known.
    opens: bool,
}

impl Sessions {
    /// Asks the server for key establishment once for each session.
    pub fn establish(options: &NtsOptions, family: Option<Family>) -> Result<Self, NtsError> {
        check(options.sessions, options.share)?;
        let address = options.establishment.resolve(family)?;
        let algorithms: Vec<_> = options.algorithms.iter().map(|one| one.number()).collect();
        let client = KeClient::new(&options.trust, &algorithms)?;
        let name = options.name.as_deref().unwrap_or(options.establishment.host());
        let one = |_| {
            let given = client.establish(name, address, PATIENCE)?;
            let keys = Algorithm::from_number(given.algorithm)
                .and_then(|algorithm| SessionKeys::new(algorithm, &given.c2s, &given.s2c).ok())
                .ok_or(NtsError::Keys(given.algorithm))?;
            Ok((keys, given.cookies))
        };
        let established = (0..options.sessions).map(one).collect::<Result<_, NtsError>>()?;
        Ok(Self { established, share: options.share, opens: true })
    }

    /// Makes up keys and seals them in cookies as a server does that was given this master secret
    /// and changes its keys as usual: `share` requests in a hundred are authenticated by `count`
    /// sessions, and no key establishment is needed.
    pub fn sealed(
        secret: &MasterSecret,
        algorithm: Algorithm,
        count: usize,
        share: u8,
    ) -> Result<Self, NtsError> {
        check(count, share)?;
        let server = CookieKeys::new(secret, ROTATION_DEFAULT, KEEP_DEFAULT, Realtime.now());
        let mut nonces = Nonces::new().map_err(random)?;
        let one = |_| {
            let keys = SessionKeys::generate(algorithm).map_err(random)?;
            let (mut cookie, mut nonce) = (vec![0; COOKIE_LEN_MAX], [0; 16]);
            nonces.fill(&mut nonce);
            let len = server.seal(&keys, nonce, &mut cookie);
            cookie.truncate(len);
            Ok((keys, vec![cookie]))
        };
        let established = (0..count).map(one).collect::<Result<_, NtsError>>()?;
        Ok(Self { established, share, opens: true })
    }

    /// The one session that was handed over authenticates all requests.
    #[must_use]
    pub fn given(session: &GivenSession) -> Self {
        let cookies = vec![session.cookie().to_vec()];
        let established = vec![(session.keys().clone(), cookies)];
        Self { established, share: 100, opens: session.opens() }
    }

    /// Whether replies are opened, so that what is counted as authentic is.
    #[must_use]
    pub const fn opens(&self) -> bool {
        self.opens
    }

    /// From keys and cookies that are known already, at least one of each.
    #[cfg(test)]
    pub(crate) const fn of(established: Vec<(SessionKeys, Vec<Vec<u8>>)>, share: u8) -> Self {
        Self { established, share, opens: true }
    }

    /// The sessions as one lane uses them.
    pub(crate) fn lane(&self, version: u8) -> Result<LaneSessions, NtsError> {
        let session = |(keys, cookies): &(SessionKeys, Vec<Vec<u8>>)| Session {
            template: RequestTemplate::new(keys, cookies.first().map_or(&[], |one| one), 0),
            client: self.opens.then(|| ClientSession::new(keys, cookies.iter().map(Vec::as_slice))),
        };
        let sessions: Vec<_> = self.established.iter().map(session).collect();
        let longest = sessions.iter().map(|session| session.template.request_len()).max();
        Ok(LaneSessions {
            request: vec![0; longest.unwrap_or(0)].into_boxed_slice(),
            sessions,
            share: self.share.into(),
            nonces: Nonces::new().map_err(random)?,
            version,
        })
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.established.len();
        f.debug_struct("Sessions").field("count", &count).finish_non_exhaustive()
    }
}

struct Session {
    template: RequestTemplate,
    /// Opens replies, where the server's key is known.
    client: Option<ClientSession>,
}

/// A lane's own copy of the sessions, ready to seal and to open without allocation.
pub struct LaneSessions {
    sessions: Vec<Session>,
    share: u64,
    nonces: Nonces,
    version: u8,
    request: Box<[u8]>,
}

impl LaneSessions {
    /// Length of the longest request, in bytes.
    pub(crate) const fn request_len_max(&self) -> usize {
        self.request.len()
    }

    /// Whether the request with this sequence number is authenticated: of any hundred in a row, as
    /// many as the share says, spread evenly.
    pub(crate) const fn has(&self, sequence: u32) -> bool {
        let before = sequence as u64 * self.share / 100;
        (sequence as u64 + 1) * self.share / 100 > before
    }

    /// The payload of a client's authenticated request.
    pub(crate) fn seal(&mut self, client: u32, stamps: Stamps) -> &[u8] {
        let mut nonce = [0; 16];
        self.nonces.fill(&mut nonce);
        let header = request::payload(self.version, stamps);
        let session = &self.sessions[client as usize % self.sessions.len()];
        let id = unique_id(stamps.transmit);
        let len = session.template.seal(&header, &id, &nonce, &mut self.request);
        &self.request[..len]
    }

    /// The payload of a plain request.
    pub(crate) fn plain(&mut self, stamps: Stamps) -> &[u8] {
        let payload = request::payload(self.version, stamps);
        self.request[..payload.len()].copy_from_slice(&payload);
        &self.request[..payload.len()]
    }

    /// Whether a reply to a client's request with this transmit timestamp is authentic, as far as
    /// can be told, and no longer than the request was.
    pub(crate) fn open(&mut self, client: u32, transmit: u64, reply: &[u8]) -> Result<(), Fault> {
        let index = client as usize % self.sessions.len();
        let session = &mut self.sessions[index];
        if reply.len() > session.template.request_len() {
            return Err(Fault::Longer);
        }
        let id = unique_id(transmit);
        let judged = match &mut session.client {
            // The session keeps as many cookies as it may have, so it takes no more of them.
            Some(client) => client.open_reply(reply, &id).map(drop),
            None => examine_reply(reply, &id),
        };
        judged.map_err(Fault::Reply)
    }
}

impl fmt::Debug for LaneSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneSessions").field("share", &self.share).finish_non_exhaustive()
    }
}

/// What is wrong with a reply that should be authentic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It is longer than its request.
    Longer,
    /// It is not authentic.
    Reply(ReplyFault),
}

/// The unique identifier of the request with this transmit timestamp. It looks random to whoever
/// does not know the timestamp, which the server gets in the clear beside it.
fn unique_id(transmit: u64) -> [u8; UNIQUE_ID_LEN] {
    let mut random = SplitMix64::new(transmit);
    let mut id = [0; UNIQUE_ID_LEN];
    for chunk in id.chunks_exact_mut(8) {
        chunk.copy_from_slice(&random.next_u64().to_be_bytes());
    }
    id
}

#[cfg(test)]
mod tests;

//! Authenticated requests (NTS, RFC 8915): sessions from NTS-KE exchanges, requests sealed at
//! sending, replies opened on arrival.
//!
//! A request carries its token inside the sealed part, so it cannot be sealed before its send time.
//! Its unique identifier is derived from the token, so no state is kept until the reply.
//!
//! A few sessions are shared by all simulated clients, or each client has its own. Clients that
//! share one reuse its cookie, as no real client would: a reused cookie costs the server as much as
//! a fresh one, and a lost reply costs the generator nothing. A client with its own session uses
//! each cookie once, takes new ones from replies, and requests as many as it lost (RFC 8915,
//! section 5.7); it reuses the last one only if no other is left.

mod lane;
mod probe;
mod renewal;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use horolog_ke::{KeClient, KeError, SessionMaterial as KeyMaterial};
use horolog_nts::{
    COOKIE_LEN_MAX, CookieKeys, KEEP_DEFAULT, Nonces, ROTATION_DEFAULT, SessionKeys, request_len,
};
use horolog_record::Finding;
use horolog_sys::clock::Realtime;
use horolog_sys::explain::explain;
use horolog_time::Clock;
use thiserror::Error;

pub use horolog_ke::{PORT as KE_PORT, TrustAnchors};
pub use horolog_nts::{
    Algorithm, ImportedSession, ImportedSessionError, MasterSecret, SecretError,
};

pub(crate) use self::lane::Fault;
pub use self::lane::LaneSessions;
use self::lane::{LaneSession, sessions_of};
use self::renewal::{Renewer, SessionRenewal};
use crate::target::{AddressFamily, TargetName, TargetNameError};

/// Default number of sessions: enough that a server which processes several packets at once uses
/// several keys, and few enough that the NTS-KE exchanges take negligible time.
pub const SESSIONS: usize = 16;

/// Most sessions: each requires a TLS handshake before the run.
pub const SESSIONS_MAX: usize = 65_536;

/// Default number of clients with a session each.
pub const CLIENTS_WITH_SESSIONS: u32 = 1000;

/// Concurrent handshakes, if many sessions are established.
const ESTABLISHING: usize = 16;

/// Longest request with placeholders, in bytes: it must pass the same paths as others.
const REQUEST_LEN_MAX: usize = 1280;

/// Timeout of one NTS-KE exchange.
const NTS_KE_TIMEOUT: Duration = Duration::from_secs(10);

/// Options for authentication of requests.
#[derive(Clone, Debug)]
pub struct NtsOptions {
    /// NTS-KE server.
    pub ke_server: TargetName,
    /// Name in its certificate; `None` takes the name of the server.
    pub name: Option<String>,
    /// Trusted certificates.
    pub trust: TrustAnchors,
    /// AEAD algorithms to offer, in order of preference.
    pub algorithms: Vec<Algorithm>,
    /// Number of sessions.
    pub sessions: SessionCount,
    /// Share of authenticated requests in percent, from 0 to 100.
    pub share: u8,
}

/// Number of sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionCount {
    /// From 1 to [`SESSIONS_MAX`] sessions, shared by all clients.
    Shared(usize),
    /// One for each client.
    PerClient,
}

/// Reason for which sessions are unavailable.
#[derive(Debug, Error)]
pub enum NtsError {
    /// The NTS-KE server has no address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// The NTS-KE exchange cannot start.
    #[error(transparent)]
    NtsKe(#[from] KeError),
    /// The NTS-KE exchange for one of the sessions failed.
    #[error(
        "no keys from {server} for one of {count} NTS sessions: {source}; {hint}",
        hint = source.hint()
    )]
    Refused {
        /// NTS-KE server.
        server: SocketAddr,
        /// Sessions requested.
        count: usize,
        /// Error of the exchange.
        source: KeError,
    },
    /// The server selected an algorithm and sent keys of another length.
    #[error("the NTS-KE server's keys do not match algorithm {0}")]
    Keys(u16),
    /// The server's cookies are unusable.
    #[error(
        "the NTS-KE server's cookies of {0} bytes do not fit into a request; configure the server \
         to issue shorter ones"
    )]
    Cookies(usize),
    /// Random numbers for nonces are unavailable.
    #[error("cannot read random numbers: {0}")]
    Random(String),
    /// The renewal thread cannot be started.
    #[error("cannot start the thread that renews NTS keys: {}", explain(.0))]
    Thread(std::io::Error),
    /// Number of sessions out of range.
    #[error("the number of NTS sessions must be from 1 to {SESSIONS_MAX}, not {0}")]
    Sessions(usize),
    /// Share out of range.
    #[error("the share of authenticated requests must be from 0 to 100, not {0}")]
    Share(u8),
    /// NTS requires version 4.
    #[error("NTS is defined for NTP version 4 only, not for version {0}")]
    Version(u8),
    /// Random sources cannot have a session each.
    #[error(
        "there would be too many NTS sessions with one for each random source; let several \
             share one session"
    )]
    RandomSources,
    /// NTS and interleaved mode cannot be combined.
    #[error("NTS cannot be combined with interleaved mode; omit one of the two")]
    Interleaved,
    /// The trailer cannot be combined with NTS, whose authenticated part ends the packet.
    #[error("NTS cannot be combined with --key or --extension; omit one of the two")]
    Additions,
}

impl NtsError {
    /// Returns true if other options would help.
    pub(crate) const fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Sessions(_)
                | Self::Share(_)
                | Self::Version(_)
                | Self::Interleaved
                | Self::Additions
                | Self::RandomSources
                | Self::NtsKe(KeError::NoTrust | KeError::BadName(_))
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

/// Keys and cookies of a run.
pub struct Sessions {
    established: Vec<SessionSecrets>,
    share: u8,
    /// True if each client has its own session.
    each: bool,
    /// True if the servers' keys are known.
    can_open: bool,
    renewal: Arc<SessionRenewal>,
    /// Renews the sessions, if their NTS-KE server is known.
    renewer: Option<Arc<Renewer>>,
    /// Findings of the NTS-KE exchanges.
    findings: Vec<Finding>,
}

/// NTS-KE server, and the parameters of its exchanges.
struct KeTarget {
    client: KeClient,
    name: String,
    address: SocketAddr,
    count: usize,
}

impl KeTarget {
    fn new(
        options: &NtsOptions,
        family: Option<AddressFamily>,
        interface: Option<&str>,
        count: usize,
    ) -> Result<Self, NtsError> {
        let address = options.ke_server.resolve(family, interface)?;
        let algorithms: Vec<_> = options.algorithms.iter().map(|one| one.number()).collect();
        let client = KeClient::new(&options.trust, &algorithms)?;
        let name =
            options.name.as_deref().unwrap_or(options.ke_server.host_without_zone()).to_owned();
        Ok(Self { client, name, address, count })
    }

    fn run_exchange(&self) -> Result<(SessionSecrets, KeyMaterial), NtsError> {
        let (server, count) = (self.address, self.count);
        let refused = |source| NtsError::Refused { server, count, source };
        let material =
            self.client.exchange_keys(&self.name, server, NTS_KE_TIMEOUT).map_err(refused)?;
        let keys = Algorithm::from_number(material.algorithm)
            .and_then(|algorithm| SessionKeys::new(algorithm, &material.c2s, &material.s2c).ok())
            .ok_or(NtsError::Keys(material.algorithm))?;
        let fits = |len: usize| request_len(keys.algorithm(), len, 0) <= REQUEST_LEN_MAX;
        let cookies = material.cookies.iter().filter(|cookie| fits(cookie.len()));
        let cookies: Vec<_> = cookies.cloned().collect();
        if cookies.is_empty() {
            return Err(NtsError::Cookies(
                material.cookies.iter().map(Vec::len).max().unwrap_or(0),
            ));
        }
        Ok(((keys, cookies), material))
    }

    fn session(&self) -> Result<SessionSecrets, NtsError> {
        self.run_exchange().map(|(session, _)| session)
    }

    /// Runs one exchange to learn the named NTP server and, if the algorithm's keys are ambiguous,
    /// whether they fit; if they do not, other algorithms are offered from now on. Also returns the
    /// session, if usable, and the findings.
    fn tried(
        self,
        target: SocketAddr,
    ) -> Result<(Self, Vec<SessionSecrets>, Vec<Finding>), NtsError> {
        let ((keys, cookies), material) = self.run_exchange()?;
        let mut findings: Vec<_> = probe::other_server(&material, target).into_iter().collect();
        if material.keys_uncertain && !probe::fit(&keys, &cookies, target) {
            findings.push(probe::abandoned());
            return Ok((Self { client: self.client.certain(), ..self }, Vec::new(), findings));
        }
        Ok((self, vec![(keys, cookies)], findings))
    }
}

/// Keys and cookies of a session.
type SessionSecrets = (SessionKeys, Vec<Vec<u8>>);

impl Sessions {
    /// Runs an NTS-KE exchange for each session; `clients` is the number of clients that send
    /// requests to `target`. A link-local address without a zone belongs to `interface`.
    pub fn open_sessions(
        options: &NtsOptions,
        target: SocketAddr,
        family: Option<AddressFamily>,
        interface: Option<&str>,
        clients: u32,
    ) -> Result<Self, NtsError> {
        let (count, each) = match options.sessions {
            SessionCount::Shared(count) => (count, false),
            SessionCount::PerClient => (clients as usize, true),
        };
        check(count, options.share)?;
        let ke = KeTarget::new(options, family, interface, count)?;
        let (ke, first, findings) = ke.tried(target)?;
        let mut established = all(count - first.len(), &|| ke.session())?;
        established.extend(first);
        let renewal = Arc::new(SessionRenewal::default());
        let again = move || all(count, &|| ke.session());
        let renewer = Renewer::start(Arc::clone(&renewal), again);
        let renewer = Some(Arc::new(renewer.map_err(NtsError::Thread)?));
        let share = options.share;
        Ok(Self { established, share, each, can_open: true, renewal, renewer, findings })
    }

    /// Creates sessions that cannot be renewed.
    fn fixed(established: Vec<SessionSecrets>, share: u8, each: bool, opens: bool) -> Self {
        let (renewal, renewer, findings) = (Arc::default(), None, Vec::new());
        Self { established, share, each, can_open: opens, renewal, renewer, findings }
    }

    /// Returns the findings about the sessions at the end of a run.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let renewed = self.renewal.finding(self.renewer.is_some());
        self.findings.iter().cloned().chain(renewed).collect()
    }

    /// Generates keys and seals them in cookies as a server with this master secret and the usual
    /// key rotation does: `share` percent of the requests are authenticated by `count` sessions,
    /// without an NTS-KE exchange.
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
        Ok(Self::fixed(established, share, false, true))
    }

    /// Returns sessions in which the one imported session authenticates all requests.
    #[must_use]
    pub fn from_imported(session: &ImportedSession) -> Self {
        let cookies = vec![session.cookie().to_vec()];
        let established = vec![(session.keys().clone(), cookies)];
        Self::fixed(established, 100, false, session.opens())
    }

    /// Returns the number of sessions, if each client has its own.
    #[must_use]
    pub const fn clients(&self) -> Option<u32> {
        if self.each { Some(self.established.len() as u32) } else { None }
    }

    /// Returns true if replies are opened, so that those counted as authentic are authentic.
    #[must_use]
    pub const fn can_open(&self) -> bool {
        self.can_open
    }

    /// Creates sessions from known keys and cookies, at least one of each.
    #[cfg(test)]
    pub(crate) fn of(established: Vec<SessionSecrets>, share: u8, each: bool) -> Self {
        Self::fixed(established, share, each, true)
    }

    /// Returns the sessions for lane `lane` of `lanes`: all of them, or those of its own clients.
    pub(crate) fn lane(
        &self,
        version: u8,
        (lane, lanes): (usize, usize),
    ) -> Result<LaneSessions, NtsError> {
        // The size of a block of clients; the assignment is arbitrary.
        let (first, step) = if self.each { (lane, lanes) } else { (0, 1) };
        let sessions = sessions_of(&self.established, (first, step), self.each, self.can_open);
        let longest = sessions.iter().map(LaneSession::request_len_max).max();
        Ok(LaneSessions {
            request: vec![0; longest.unwrap_or(0)].into_boxed_slice(),
            sessions,
            share: self.share.into(),
            nonces: Nonces::new().map_err(random)?,
            version,
            each: self.each,
            stored_cookies: 0,
            part: (first, step),
            counts: self.renewal.lane(),
            renewal: Arc::clone(&self.renewal),
            renewer: self.renewer.clone(),
            generation: 0,
        })
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.established.len();
        f.debug_struct("Sessions").field("count", &count).finish_non_exhaustive()
    }
}

/// Calls `one` `count` times, from several threads if `count` is large.
fn all(
    count: usize,
    one: &(dyn Fn() -> Result<SessionSecrets, NtsError> + Sync),
) -> Result<Vec<SessionSecrets>, NtsError> {
    let threads = count.div_ceil(ESTABLISHING).min(ESTABLISHING);
    thread::scope(|scope| {
        let share = |thread: usize| (thread..count).step_by(threads).map(|_| one());
        let tasks: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || share(thread).collect())).collect();
        let results = tasks
            .into_iter()
            .map(|task| task.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let parts: Result<Vec<Vec<_>>, NtsError> = results.collect();
        Ok(parts?.into_iter().flatten().collect())
    })
}

#[cfg(test)]
mod tests;

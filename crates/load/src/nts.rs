//! Authenticated requests (NTS, RFC 8915): sessions from key establishment, requests sealed as they
//! are sent, replies opened as they come.
//!
//! A request carries its token inside what is sealed, so it cannot be sealed before its instant.
//! Its unique identifier follows from the token, so nothing is kept of it until the reply.
//!
//! A few sessions are shared by all simulated clients, or each client has its own. Clients that
//! share one use its cookie again and again, which no client with a user would do: the server
//! spends as much on it as on a fresh one, and a lost reply costs the generator nothing. A client
//! with a session of its own uses each cookie once, takes new ones out of replies, and asks for as
//! many as it lost (RFC 8915, section 5.7); only one that has none left uses the last one again.

use std::fmt;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use horolog_ke::{KeClient, KeError};
use horolog_nts::{
    COOKIE_LEN_MAX, COOKIES_MAX, ClientSession, CookieKeys, KEEP_DEFAULT, Nonces, ROTATION_DEFAULT,
    ReplyFault, RequestTemplate, SessionKeys, UNIQUE_ID_LEN, examine_reply, request_len,
};
use horolog_sys::clock::Realtime;
use horolog_time::Clock;
use thiserror::Error;

pub use horolog_ke::{PORT as KE_PORT, Trust};
pub use horolog_nts::{Algorithm, GivenError, GivenSession, MasterSecret, SecretError};

use crate::random::SplitMix64;
use crate::request::{self, Stamps};
use crate::target::{Family, TargetName, TargetNameError};

/// Sessions unless a number is asked for: enough that a server which works on several packets at
/// once meets several keys, and few enough that establishing them takes no time to speak of.
pub const SESSIONS: usize = 16;

/// The most sessions: each takes a TLS handshake of its own before the run.
pub const SESSIONS_MAX: usize = 65_536;

/// Clients that have a session each, unless a number is asked for.
pub const CLIENTS_WITH_SESSIONS: u32 = 1000;

/// Handshakes at the same time, where many sessions are established.
const ESTABLISHING: usize = 16;

/// The longest request with placeholders, in bytes: it has to pass wherever others do.
const REQUEST_LEN_MAX: usize = 1280;

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
    /// Sessions.
    pub sessions: SessionCount,
    /// How many requests in a hundred are authenticated, from 0 to 100.
    pub share: u8,
}

/// How many sessions there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionCount {
    /// So many, from 1 to [`SESSIONS_MAX`], shared by all clients.
    Shared(usize),
    /// One for each client.
    Each,
}

/// Why there are no sessions.
#[derive(Debug, Error)]
pub enum NtsError {
    /// The server for key establishment has no address.
    #[error(transparent)]
    Target(#[from] TargetNameError),
    /// Key establishment cannot even begin.
    #[error(transparent)]
    Establishment(#[from] KeError),
    /// The server gave no keys for one of the sessions.
    #[error(
        "no keys from {server} for one of {count} NTS sessions: {source}; it may limit connections \
         by number and by address, and its certificate has to be for the name (--nts-name) and \
         trusted (--ca)"
    )]
    Refused {
        /// The server for key establishment.
        server: SocketAddr,
        /// Sessions that were wanted.
        count: usize,
        /// Why.
        source: KeError,
    },
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
    /// Clients without number cannot have a session each.
    #[error("random sources are too many for a session each; let them share some")]
    RandomSources,
    /// Modes that are not had together.
    #[error("NTS and interleaved mode (--interleaved) exclude one another; leave out one of them")]
    Interleaved,
    /// What is authenticated ends with that.
    #[error("NTS stands alone behind a request's header; leave out --key and --extension")]
    Additions,
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
                | Self::Additions
                | Self::RandomSources
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
    established: Vec<Established>,
    share: u8,
    /// Whether each client has one to itself.
    each: bool,
    /// The servers' keys are known.
    opens: bool,
}

/// A session's keys and cookies.
type Established = (SessionKeys, Vec<Vec<u8>>);

impl Sessions {
    /// Asks the server for key establishment once for each session; `clients` is how many clients
    /// there are.
    pub fn establish(
        options: &NtsOptions,
        family: Option<Family>,
        clients: u32,
    ) -> Result<Self, NtsError> {
        let (count, each) = match options.sessions {
            SessionCount::Shared(count) => (count, false),
            SessionCount::Each => (clients as usize, true),
        };
        check(count, options.share)?;
        let address = options.establishment.resolve(family)?;
        let algorithms: Vec<_> = options.algorithms.iter().map(|one| one.number()).collect();
        let client = KeClient::new(&options.trust, &algorithms)?;
        let name = options.name.as_deref().unwrap_or(options.establishment.host());
        let one = || {
            let refused = |source| NtsError::Refused { server: address, count, source };
            let given = client.establish(name, address, PATIENCE).map_err(refused)?;
            let keys = Algorithm::from_number(given.algorithm)
                .and_then(|algorithm| SessionKeys::new(algorithm, &given.c2s, &given.s2c).ok())
                .ok_or(NtsError::Keys(given.algorithm))?;
            Ok((keys, given.cookies))
        };
        let established = all(count, &one)?;
        Ok(Self { established, share: options.share, each, opens: true })
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
        Ok(Self { established, share, each: false, opens: true })
    }

    /// The one session that was handed over authenticates all requests.
    #[must_use]
    pub fn given(session: &GivenSession) -> Self {
        let cookies = vec![session.cookie().to_vec()];
        let established = vec![(session.keys().clone(), cookies)];
        Self { established, share: 100, each: false, opens: session.opens() }
    }

    /// How many there are, where each client has its own.
    #[must_use]
    pub const fn clients(&self) -> Option<u32> {
        if self.each { Some(self.established.len() as u32) } else { None }
    }

    /// Whether replies are opened, so that what is counted as authentic is.
    #[must_use]
    pub const fn opens(&self) -> bool {
        self.opens
    }

    /// From keys and cookies that are known already, at least one of each.
    #[cfg(test)]
    pub(crate) const fn of(established: Vec<Established>, share: u8, each: bool) -> Self {
        Self { established, share, each, opens: true }
    }

    /// The sessions as lane `lane` of `lanes` uses them: all of them, or those of its own clients.
    pub(crate) fn lane(
        &self,
        version: u8,
        (lane, lanes): (usize, usize),
    ) -> Result<LaneSessions, NtsError> {
        // As many as a block of clients has; which of them does not matter.
        let (first, step) = if self.each { (lane, lanes) } else { (0, 1) };
        let own = self.established.iter().skip(first).step_by(step);
        let sessions: Vec<_> = own.map(|one| Session::new(one, self.each, self.opens)).collect();
        let longest = sessions.iter().map(Session::request_len_max).max();
        Ok(LaneSessions {
            request: vec![0; longest.unwrap_or(0)].into_boxed_slice(),
            sessions,
            share: self.share.into(),
            nonces: Nonces::new().map_err(random)?,
            version,
            each: self.each,
            kept: 0,
        })
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.established.len();
        f.debug_struct("Sessions").field("count", &count).finish_non_exhaustive()
    }
}

/// Calls `one` so many times, from several threads where it is many.
fn all(
    count: usize,
    one: &(dyn Fn() -> Result<Established, NtsError> + Sync),
) -> Result<Vec<Established>, NtsError> {
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

struct Session {
    template: RequestTemplate,
    /// Keeps cookies and opens replies, where the server's key is known.
    client: Option<ClientSession>,
    /// Placeholders that a request may have; `None` where cookies are not used up.
    placeholders_max: Option<usize>,
}

impl Session {
    fn new((keys, cookies): &Established, each: bool, opens: bool) -> Self {
        let cookie = cookies.first().map_or(&[][..], |one| one);
        let fits = |placeholders: &usize| {
            request_len(keys.algorithm(), cookie.len(), *placeholders) <= REQUEST_LEN_MAX
        };
        let placeholders_max = each.then(|| (0..COOKIES_MAX).rev().find(fits).unwrap_or_default());
        Self {
            template: RequestTemplate::new(keys, cookie, placeholders_max.unwrap_or_default()),
            client: opens.then(|| ClientSession::new(keys, cookies.iter().map(Vec::as_slice))),
            placeholders_max,
        }
    }

    const fn request_len_max(&self) -> usize {
        let placeholders = match self.placeholders_max {
            Some(placeholders) => placeholders,
            None => 0,
        };
        self.template.request_len(placeholders)
    }

    /// Readies the template for the next request: returns how many placeholders it is to have, and
    /// whether its cookie was used before.
    fn next(&mut self) -> (usize, bool) {
        let (Some(most), Some(client)) = (self.placeholders_max, &mut self.client) else {
            return (0, false);
        };
        let cookie = client.take_cookie();
        let fresh = cookie.is_some_and(|cookie| self.template.renew(&cookie));
        let missing = (COOKIES_MAX - 1).saturating_sub(client.cookies());
        (missing.min(most), !fresh)
    }
}

/// A lane's own copy of the sessions, ready to seal and to open without allocation.
pub struct LaneSessions {
    sessions: Vec<Session>,
    share: u64,
    nonces: Nonces,
    version: u8,
    request: Box<[u8]>,
    /// Each client has one of its own, and should use every cookie once.
    each: bool,
    /// Cookies that were kept of the reply that was opened last.
    kept: usize,
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

    /// Whether cookies that are used again are to be counted.
    pub(crate) const fn counts_reused(&self) -> bool {
        self.each
    }

    /// The payload of a client's authenticated request; counts in `reused`, where that counts at
    /// all, a cookie that was used before.
    pub(crate) fn seal(&mut self, client: u32, stamps: Stamps, reused: &mut Option<u64>) -> &[u8] {
        let mut nonce = [0; 16];
        self.nonces.fill(&mut nonce);
        let header = request::payload(self.version, stamps);
        let index = client as usize % self.sessions.len();
        let session = &mut self.sessions[index];
        let (placeholders, again) = session.next();
        if let Some(count) = reused {
            *count += u64::from(again);
        }
        let id = unique_id(stamps.transmit);
        let len = session.template.seal(&header, &id, &nonce, placeholders, &mut self.request);
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
        // Which of several requests under way had how many placeholders is not kept.
        if reply.len() > session.request_len_max() {
            return Err(Fault::Longer);
        }
        let id = unique_id(transmit);
        let judged = match &mut session.client {
            // It keeps no more cookies than it may have.
            Some(client) => {
                let before = client.cookies();
                let opened = client.open_reply(reply, &id).map(drop);
                self.kept = client.cookies() - before;
                opened
            }
            None => examine_reply(reply, &id),
        };
        judged.map_err(Fault::Reply)
    }

    /// Gives back the cookies of the reply to `client` that was opened last: it had come before, so
    /// they were kept already.
    pub(crate) fn give_back(&mut self, client: u32) {
        let index = client as usize % self.sessions.len();
        if let Some(client) = &mut self.sessions[index].client {
            for _ in 0..std::mem::take(&mut self.kept) {
                drop(client.take_cookie());
            }
        }
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

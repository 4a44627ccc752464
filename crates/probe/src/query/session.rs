//! Authenticated exchanges (NTS, RFC 8915): keys and cookies from NTS-KE, a fresh cookie for each
//! request, and new keys when the cookies are used up, refused or not answered.

mod renewal;

use std::net::SocketAddr;
use std::time::Duration;

use horolog_io::target::{AddressFamily, TargetName};
use horolog_ke::{KeClient, KeError, PORT as KE_PORT, SessionMaterial};
use horolog_nts::{Algorithm, ClientSession, Nonces, ReplyError, SessionKeys, UNIQUE_ID_LEN};
use horolog_record::NtsUse;
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ntp::HEADER_LEN;

use self::renewal::RenewalState;
use super::options::QueryNtsOptions;

/// Timeout of one NTS-KE exchange.
const NTS_KE_TIMEOUT: Duration = Duration::from_secs(10);

/// Consecutive NTS-KE exchanges that may name another server than the polled one while its keys are
/// renewed.
const NAMINGS_MAX: u32 = 8;

/// Maximum length of a request: IPv6's least MTU less the headers before it, so that it is never
/// fragmented (RFC 8200, section 5).
const REQUEST_LEN_MAX: usize = 1280 - 40 - 8;

/// Failure of an association, with advice.
#[derive(Clone, Debug)]
pub(crate) struct SessionError {
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

impl SessionError {
    pub(crate) fn new(message: impl Into<String>, hint: &'static str) -> Self {
        Self { message: message.into(), hint }
    }
}

impl From<KeError> for SessionError {
    fn from(error: KeError) -> Self {
        Self::new(error.to_string(), error.hint())
    }
}

/// Association with one server.
pub(crate) struct NtsAssociation {
    ke: KeClient,
    /// Target that the user named, and the server that NTS-KE named for it.
    target: TargetName,
    requested: TargetName,
    /// NTS-KE server, and the name in its certificate.
    ke_server: TargetName,
    name: String,
    address: SocketAddr,
    client: ClientSession,
    renewal: RenewalState,
    /// Failure of the last attempt at new keys.
    failure: Option<SessionError>,
    algorithm: Algorithm,
    used: NtsUse,
    unique_id: [u8; UNIQUE_ID_LEN],
    room: Box<[u8]>,
}

impl NtsAssociation {
    /// Runs an NTS-KE exchange; also returns the time server, which may be another one. A
    /// link-local address without a zone of its own is one of `interface`.
    pub(crate) fn establish(
        options: &QueryNtsOptions,
        target: &TargetName,
        family: Option<AddressFamily>,
        interface: Option<&str>,
    ) -> Result<(Self, TargetName), SessionError> {
        let own = || target.with_port(KE_PORT);
        let ke_server = options.ke_server.clone().unwrap_or_else(own);
        let address = ke_server.resolve(family, interface);
        let address = address.map_err(|error| unresolved(&error))?;
        let algorithms: Vec<_> = options.algorithms.iter().map(|one| one.number()).collect();
        let ke = KeClient::new(&options.trust, &algorithms)?;
        let name = options.name.clone().unwrap_or_else(|| ke_server.host_without_zone().to_owned());
        let material = ke.exchange_keys(&name, address, NTS_KE_TIMEOUT)?;
        let requested = server_of(&material, target)?;
        let (client, algorithm) = client_of(&material)?;
        let server = (requested != target.with_port(target.port())).then(|| requested.to_string());
        let used = NtsUse {
            ke_server: ke_server.to_string(),
            algorithm: name_of(algorithm).to_owned(),
            ke_exchanges: 1,
            server,
            renewals: 0,
            renewals_failed: 0,
            abandoned_algorithm: None,
        };
        let session = Self {
            ke,
            target: target.clone(),
            requested: requested.clone(),
            ke_server,
            name,
            address,
            client,
            renewal: RenewalState::default(),
            failure: None,
            algorithm,
            used,
            unique_id: [0; UNIQUE_ID_LEN],
            room: vec![0; REQUEST_LEN_MAX].into_boxed_slice(),
        };
        Ok((session, requested))
    }

    /// Returns the payload of a request with this header; `None` while there is no cookie and RFC
    /// 8915, section 4.2, does not yet permit another NTS-KE exchange. Renews the keys first if
    /// that is due.
    pub(crate) fn seal(
        &mut self,
        header: &[u8; HEADER_LEN],
        random: &mut Nonces,
        now: Timestamp<Monotonic>,
    ) -> Option<&[u8]> {
        let wanted = self.renewal.is_wanted();
        if (wanted || self.client.cookies() == 0) && self.renewal.is_allowed(now) {
            self.renewal.attempted(now);
            self.failure = self.renew(wanted).err();
            self.used.renewals_failed += u64::from(self.failure.is_some());
        }
        let mut nonce = [0; 16];
        random.fill(&mut nonce);
        random.fill(&mut self.unique_id);
        let len = self.client.seal_request(header, &self.unique_id, &nonce, &mut self.room);
        (len > 0).then(|| &self.room[..len])
    }

    /// Replaces keys and cookies. If the old keys may not have matched, the new ones use an
    /// algorithm with an unambiguous key export.
    fn renew(&mut self, wanted: bool) -> Result<(), SessionError> {
        let certain = (wanted && self.is_unproved()).then(|| self.ke.certain());
        let ke = certain.as_ref().unwrap_or(&self.ke);
        let establish = || ke.exchange_keys(&self.name, self.address, NTS_KE_TIMEOUT);
        let material = keys_for(&self.requested, &self.target, establish)?.map_err(|named| {
            let message = format!("{} now names another NTP server, {named}", self.ke_server);
            SessionError::new(message, "run it again to measure that server")
        })?;
        let (client, algorithm) = client_of(&material)?;
        self.client = client;
        self.algorithm = algorithm;
        self.used.ke_exchanges += 1;
        let before = std::mem::replace(&mut self.used.algorithm, name_of(algorithm).to_owned());
        if let Some(ke) = certain {
            self.ke = ke;
            self.used.abandoned_algorithm = Some(before);
        } else {
            self.used.renewals += u64::from(wanted);
        }
        self.renewal.renewed();
        Ok(())
    }

    /// Returns true if both ends may have exported different keys: implementations disagree on the
    /// export for AES-128-GCM-SIV, and no key has been used with success.
    fn is_unproved(&self) -> bool {
        self.algorithm == Algorithm::Aes128GcmSiv && !self.renewal.was_answered()
    }

    /// Checks that this is an authentic reply to the last request; stores its cookies.
    pub(crate) fn open(&mut self, reply: &[u8]) -> Result<(), ReplyError> {
        let opened = self.client.open_reply(reply, &self.unique_id).map(drop);
        match opened {
            Ok(()) => self.renewal.answered(),
            Err(ReplyError::Forged) if self.is_unproved() => self.renewal.refused(),
            Err(ReplyError::Refused) => self.renewal.refused(),
            Err(_) => {}
        }
        opened
    }

    /// Records that the last request has no authentic reply.
    pub(crate) fn unanswered(&mut self) {
        self.renewal.unanswered();
    }

    /// Returns the reason for missing keys, if they are missing.
    pub(crate) fn failure(&self) -> Option<&SessionError> {
        self.failure.as_ref().filter(|_| self.client.cookies() == 0)
    }

    /// Returns the description for the result.
    pub(crate) fn describe(&self) -> NtsUse {
        self.used.clone()
    }
}

/// Repeats NTS-KE exchanges until they name the polled server, since cookies are valid only there:
/// a pool names any of its servers. Returns the last named one if that never happens.
fn keys_for(
    requested: &TargetName,
    target: &TargetName,
    mut establish: impl FnMut() -> Result<SessionMaterial, KeError>,
) -> Result<Result<SessionMaterial, TargetName>, SessionError> {
    let mut left = NAMINGS_MAX;
    loop {
        let material = establish()?;
        let named = server_of(&material, target)?;
        left -= 1;
        if named == *requested {
            return Ok(Ok(material));
        }
        if left == 0 {
            return Ok(Err(named));
        }
    }
}

const fn name_of(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::AesSivCmac256 => "AES-SIV-CMAC-256",
        Algorithm::Aes128GcmSiv => "AES-128-GCM-SIV",
    }
}

pub(crate) fn unresolved(error: &impl ToString) -> SessionError {
    SessionError::new(error.to_string(), "check the name, and this host's resolver")
}

/// Returns the server to poll: the target, unless NTS-KE names another one.
fn server_of(material: &SessionMaterial, target: &TargetName) -> Result<TargetName, SessionError> {
    let port = material.port.unwrap_or(target.port());
    match &material.server {
        None => Ok(target.with_port(port)),
        Some(host) => {
            TargetName::parse(host, port).map(|name| name.with_port(port)).map_err(|_| {
                let message = format!("the NTS-KE server names '{host}' as NTP server");
                SessionError::new(message, "this is neither an address nor a name")
            })
        }
    }
}

fn client_of(material: &SessionMaterial) -> Result<(ClientSession, Algorithm), SessionError> {
    let algorithm = Algorithm::from_number(material.algorithm);
    let algorithm = algorithm.ok_or(KeError::NotOffered(material.algorithm))?;
    let keys = SessionKeys::new(algorithm, &material.c2s, &material.s2c)
        .map_err(|error| SessionError::new(error.to_string(), "this is a bug of this program"))?;
    let client = ClientSession::new(&keys, material.cookies.iter().map(Vec::as_slice));
    if client.cookies() == 0 {
        let longest = material.cookies.iter().map(Vec::len).max().unwrap_or(0);
        let message =
            format!("the NTS-KE server's cookies of {longest} bytes do not fit into a request");
        return Err(SessionError::new(message, "configure the server to issue shorter ones"));
    }
    Ok((client, algorithm))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn material_of(server: &str) -> SessionMaterial {
        SessionMaterial {
            algorithm: 15,
            c2s: vec![0; 32].into(),
            s2c: vec![0; 32].into(),
            cookies: vec![vec![0; 100]],
            server: Some(server.to_owned()),
            port: None,
            keys_uncertain: false,
        }
    }

    #[test]
    fn nts_ke_is_repeated_until_a_pool_names_the_server_again() {
        let target: TargetName = "pool.test".parse().unwrap();
        let requested = TargetName::parse("b.test", 123).unwrap().with_port(123);
        let count = Cell::new(0);
        let pool = |names: &'static [&str]| {
            let count = &count;
            move || {
                count.set(count.get() + 1);
                Ok(material_of(names[(count.get() - 1) % names.len()]))
            }
        };
        let found = keys_for(&requested, &target, pool(&["c.test", "d.test", "b.test"])).unwrap();
        assert_eq!(found.map(|given| given.server), Ok(Some("b.test".to_owned())));
        assert_eq!(count.replace(0), 3);
        let found = keys_for(&requested, &target, pool(&["c.test"])).unwrap();
        assert_eq!(found.map(|_| ()).unwrap_err().host(), "c.test");
        assert_eq!(count.get(), NAMINGS_MAX as usize);
        assert!(keys_for(&requested, &target, || Err(KeError::NoProtocol)).is_err());
    }
}

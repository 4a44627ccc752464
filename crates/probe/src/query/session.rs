//! NTS association with a server (RFC 8915): keys and cookies from NTS-KE, a fresh cookie per
//! request, and new keys when cookies are used up, refused or not answered.

mod renewal;

use std::net::SocketAddr;
use std::time::Duration;

use horolog_io::target::{AddressFamily, TargetName};
use horolog_ke::{NtsKeClient, NtsKeError, PORT as KE_PORT, SessionMaterial};
use horolog_nts::{
    AeadAlgorithm, ClientSession, NonceStream, ReplyError, SessionKeys, UNIQUE_ID_LEN,
};
use horolog_record::NtsUseSummary;
use horolog_time::{Monotonic, Timestamp};
use horolog_wire::ntp::HEADER_LEN;

use self::renewal::NtsKeyRenewalState;
use super::options::QueryNtsOptions;

/// Timeout of one NTS-KE exchange.
const NTS_KE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of NTS-KE exchanges in one renewal, until one names the polled server.
const KE_EXCHANGES_MAX: u32 = 8;

/// Maximum length of a request in bytes: the minimum IPv6 MTU less the IP and UDP headers, so that
/// it is never fragmented (RFC 8200, section 5).
const REQUEST_LEN_MAX: usize = 1280 - 40 - 8;

/// Error of an association, with advice.
#[derive(Clone, Debug)]
pub(crate) struct NtsAssociationError {
    pub(crate) message: String,
    pub(crate) hint: &'static str,
}

impl NtsAssociationError {
    pub(crate) fn new(message: impl Into<String>, hint: &'static str) -> Self {
        Self { message: message.into(), hint }
    }
}

impl From<NtsKeError> for NtsAssociationError {
    fn from(error: NtsKeError) -> Self {
        Self::new(error.to_string(), error.hint())
    }
}

/// NTS association with one server.
pub(crate) struct NtsAssociation {
    ke_client: NtsKeClient,
    /// Target named by the user, and the server polled for it.
    target: TargetName,
    server: TargetName,
    /// NTS-KE server, and the name in its certificate.
    ke_server: TargetName,
    certificate_name: String,
    ke_address: SocketAddr,
    client: ClientSession,
    renewal: NtsKeyRenewalState,
    /// Error of the last attempt to renew the keys.
    failure: Option<NtsAssociationError>,
    algorithm: AeadAlgorithm,
    usage: NtsUseSummary,
    unique_id: [u8; UNIQUE_ID_LEN],
    request_buffer: Box<[u8]>,
}

impl NtsAssociation {
    /// Runs an NTS-KE exchange; returns the association and the server to poll, which NTS-KE may
    /// have named. Link-local addresses without a zone belong to `interface`.
    pub(crate) fn establish(
        options: &QueryNtsOptions,
        target: &TargetName,
        family: Option<AddressFamily>,
        interface: Option<&str>,
    ) -> Result<(Self, TargetName), NtsAssociationError> {
        let own = || target.with_port(KE_PORT);
        let ke_server = options.ke_server.clone().unwrap_or_else(own);
        let address = ke_server.resolve(family, interface);
        let address = address.map_err(|error| name_error(&error))?;
        let algorithms: Vec<_> = options.algorithms.iter().map(|one| one.number()).collect();
        let ke = NtsKeClient::new(&options.trust, &algorithms)?;
        let name = options.name.clone().unwrap_or_else(|| ke_server.host_without_zone().to_owned());
        let material = ke.exchange_keys(&name, address, NTS_KE_TIMEOUT)?;
        let requested = server_to_poll(&material, target)?;
        let (client, algorithm) = nts_client(&material)?;
        let server = (requested != target.with_port(target.port())).then(|| requested.to_string());
        let used = NtsUseSummary {
            ke_server: ke_server.to_string(),
            algorithm: algorithm_name(algorithm).to_owned(),
            ke_exchanges: 1,
            server,
            renewals: 0,
            renewals_failed: 0,
            abandoned_algorithm: None,
        };
        let session = Self {
            ke_client: ke,
            target: target.clone(),
            server: requested.clone(),
            ke_server,
            certificate_name: name,
            ke_address: address,
            client,
            renewal: NtsKeyRenewalState::default(),
            failure: None,
            algorithm,
            usage: used,
            unique_id: [0; UNIQUE_ID_LEN],
            request_buffer: vec![0; REQUEST_LEN_MAX].into_boxed_slice(),
        };
        Ok((session, requested))
    }

    /// Returns the authenticated request with this header, after renewing the keys if that is due.
    /// `None` while there is no cookie and another NTS-KE exchange is not yet permitted (RFC 8915,
    /// section 4.2).
    pub(crate) fn seal_request(
        &mut self,
        header: &[u8; HEADER_LEN],
        random: &mut NonceStream,
        now: Timestamp<Monotonic>,
    ) -> Option<&[u8]> {
        let is_renewal_wanted = self.renewal.is_wanted();
        if (is_renewal_wanted || self.client.cookie_count() == 0) && self.renewal.is_allowed(now) {
            self.renewal.record_attempt(now);
            self.failure = self.renew_keys(is_renewal_wanted).err();
            self.usage.renewals_failed += u64::from(self.failure.is_some());
        }
        let mut nonce = [0; 16];
        random.fill(&mut nonce);
        random.fill(&mut self.unique_id);
        let len =
            self.client.seal_request(header, &self.unique_id, &nonce, &mut self.request_buffer);
        (len > 0).then(|| &self.request_buffer[..len])
    }

    /// Replaces keys and cookies by an NTS-KE exchange. `is_renewal_wanted` is false if only the
    /// cookies have run out. If it is true, and the keys of both ends may have differed, uses the
    /// fallback client, whose key export is unambiguous.
    fn renew_keys(&mut self, is_renewal_wanted: bool) -> Result<(), NtsAssociationError> {
        let rfc_client = (is_renewal_wanted && self.may_mismatch_keys())
            .then(|| self.ke_client.fallback_client());
        let ke = rfc_client.as_ref().unwrap_or(&self.ke_client);
        let establish =
            || ke.exchange_keys(&self.certificate_name, self.ke_address, NTS_KE_TIMEOUT);
        let material =
            keys_for_server(&self.server, &self.target, establish)?.map_err(|named| {
                let message = format!("{} now names another NTP server, {named}", self.ke_server);
                NtsAssociationError::new(message, "run it again to measure that server")
            })?;
        let (client, algorithm) = nts_client(&material)?;
        self.client = client;
        self.algorithm = algorithm;
        self.usage.ke_exchanges += 1;
        let before =
            std::mem::replace(&mut self.usage.algorithm, algorithm_name(algorithm).to_owned());
        if let Some(ke) = rfc_client {
            self.ke_client = ke;
            self.usage.abandoned_algorithm = Some(before);
        } else {
            self.usage.renewals += u64::from(is_renewal_wanted);
        }
        self.renewal.record_new_keys();
        Ok(())
    }

    /// Returns true if both ends may have derived different keys: for AES-128-GCM-SIV
    /// implementations differ in the key export, and no reply has been authenticated yet.
    fn may_mismatch_keys(&self) -> bool {
        self.algorithm == AeadAlgorithm::Aes128GcmSiv && !self.renewal.is_proved()
    }

    /// Authenticates a reply to the last request and stores its cookies.
    pub(crate) fn open_reply(&mut self, reply: &[u8]) -> Result<(), ReplyError> {
        let opened = self.client.open_reply(reply, &self.unique_id).map(drop);
        match opened {
            Ok(()) => self.renewal.record_reply(),
            Err(ReplyError::Forged) if self.may_mismatch_keys() => self.renewal.record_refusal(),
            Err(ReplyError::CookieRefused) => self.renewal.record_refusal(),
            Err(_) => {}
        }
        opened
    }

    /// Records that the last request received no authentic reply.
    pub(crate) fn count_unanswered(&mut self) {
        self.renewal.count_unanswered();
    }

    /// Returns the error because of which there are no cookies, if there are none.
    pub(crate) fn failure(&self) -> Option<&NtsAssociationError> {
        self.failure.as_ref().filter(|_| self.client.cookie_count() == 0)
    }

    /// Returns the description of the association for the result.
    pub(crate) fn usage(&self) -> NtsUseSummary {
        self.usage.clone()
    }
}

/// Repeats NTS-KE exchanges until one names the polled server, for which alone its cookies are
/// valid (a pool names any of its servers). Returns the last named server if none does.
fn keys_for_server(
    requested: &TargetName,
    target: &TargetName,
    mut establish: impl FnMut() -> Result<SessionMaterial, NtsKeError>,
) -> Result<Result<SessionMaterial, TargetName>, NtsAssociationError> {
    let mut left = KE_EXCHANGES_MAX;
    loop {
        let material = establish()?;
        let named = server_to_poll(&material, target)?;
        left -= 1;
        if named == *requested {
            return Ok(Ok(material));
        }
        if left == 0 {
            return Ok(Err(named));
        }
    }
}

const fn algorithm_name(algorithm: AeadAlgorithm) -> &'static str {
    match algorithm {
        AeadAlgorithm::AesSivCmac256 => "AES-SIV-CMAC-256",
        AeadAlgorithm::Aes128GcmSiv => "AES-128-GCM-SIV",
    }
}

pub(crate) fn name_error(error: &impl ToString) -> NtsAssociationError {
    NtsAssociationError::new(error.to_string(), "check the name, and this host's resolver")
}

/// Returns the server to poll: the one named by NTS-KE, otherwise the target.
fn server_to_poll(
    material: &SessionMaterial,
    target: &TargetName,
) -> Result<TargetName, NtsAssociationError> {
    let port = material.port.unwrap_or(target.port());
    match &material.server {
        None => Ok(target.with_port(port)),
        Some(host) => {
            TargetName::parse(host, port).map(|name| name.with_port(port)).map_err(|_| {
                let message = format!("the NTS-KE server names '{host}' as NTP server");
                NtsAssociationError::new(message, "this is neither an address nor a name")
            })
        }
    }
}

fn nts_client(
    material: &SessionMaterial,
) -> Result<(ClientSession, AeadAlgorithm), NtsAssociationError> {
    let algorithm = AeadAlgorithm::from_number(material.algorithm);
    let algorithm = algorithm.ok_or(NtsKeError::NotOffered(material.algorithm))?;
    let keys = SessionKeys::new(algorithm, &material.c2s, &material.s2c).map_err(|error| {
        NtsAssociationError::new(error.to_string(), "this is a bug of this program")
    })?;
    let client = ClientSession::new(&keys, material.cookies.iter().map(Vec::as_slice));
    if client.cookie_count() == 0 {
        let longest = material.cookies.iter().map(Vec::len).max().unwrap_or(0);
        let message =
            format!("the NTS-KE server's cookies of {longest} bytes do not fit into a request");
        return Err(NtsAssociationError::new(
            message,
            "configure the server to issue shorter ones",
        ));
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
        let found =
            keys_for_server(&requested, &target, pool(&["c.test", "d.test", "b.test"])).unwrap();
        assert_eq!(found.map(|given| given.server), Ok(Some("b.test".to_owned())));
        assert_eq!(count.replace(0), 3);
        let found = keys_for_server(&requested, &target, pool(&["c.test"])).unwrap();
        assert_eq!(found.map(|_| ()).unwrap_err().host(), "c.test");
        assert_eq!(count.get(), KE_EXCHANGES_MAX as usize);
        assert!(keys_for_server(&requested, &target, || Err(NtsKeError::NoProtocol)).is_err());
    }
}

//! Authenticated exchanges (NTS, RFC 8915): keys and cookies from key establishment, a fresh cookie
//! for each request, and new keys when the cookies are used up.

use std::net::SocketAddr;
use std::time::Duration;

use horolog_io::target::{Family, TargetName};
use horolog_ke::{Established, KeClient, PORT as KE_PORT};
use horolog_nts::{Algorithm, ClientSession, Nonces, ReplyFault, SessionKeys, UNIQUE_ID_LEN};
use horolog_record::NtsUse;
use horolog_wire::ntp::HEADER_LEN;

use super::options::NtsOptions;

/// How long one key establishment may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Room for a request: IPv6's least MTU less the headers before it, so that it is never fragmented
/// (RFC 8200, section 5).
const REQUEST_LEN_MAX: usize = 1280 - 40 - 8;

/// An association with one server.
pub(crate) struct Session {
    ke: KeClient,
    /// What the user named, and the server that key establishment named for it.
    target: TargetName,
    asked: TargetName,
    /// Who establishes keys, and the name that its certificate is for.
    establishment: TargetName,
    name: String,
    address: SocketAddr,
    client: ClientSession,
    algorithm: Algorithm,
    establishments: u64,
    unique_id: [u8; UNIQUE_ID_LEN],
    room: Box<[u8]>,
}

impl Session {
    /// Asks for keys; also gives the server to ask for the time, which may be another one.
    pub(crate) fn establish(
        options: &NtsOptions,
        target: &TargetName,
        family: Option<Family>,
    ) -> Result<(Self, TargetName), String> {
        let own = || target.with_port(KE_PORT);
        let establishment = options.establishment.clone().unwrap_or_else(own);
        let address = establishment.resolve(family).map_err(|error| error.to_string())?;
        let algorithms: Vec<_> = options.algorithms.iter().map(|one| one.number()).collect();
        let ke = KeClient::new(&options.trust, &algorithms).map_err(|error| error.to_string())?;
        let name = options.name.clone().unwrap_or_else(|| establishment.host().to_owned());
        let given = ke.establish(&name, address, PATIENCE).map_err(|error| error.to_string())?;
        let asked = server_of(&given, target)?;
        let (client, algorithm) = client_of(&given)?;
        let session = Self {
            ke,
            target: target.clone(),
            asked: asked.clone(),
            establishment,
            name,
            address,
            client,
            algorithm,
            establishments: 1,
            unique_id: [0; UNIQUE_ID_LEN],
            room: vec![0; REQUEST_LEN_MAX].into_boxed_slice(),
        };
        Ok((session, asked))
    }

    /// The payload of a request with this header. Asks for new keys first if no cookie is left (RFC
    /// 8915, section 5.7).
    pub(crate) fn seal(
        &mut self,
        header: &[u8; HEADER_LEN],
        random: &mut Nonces,
    ) -> Result<&[u8], String> {
        if self.client.cookies() == 0 {
            let given = self.ke.establish(&self.name, self.address, PATIENCE);
            let given = given.map_err(|error| error.to_string())?;
            let named = server_of(&given, &self.target)?;
            if named != self.asked {
                // Its cookies are of no use to the one that is asked.
                return Err(format!("key establishment names another server now, {named}"));
            }
            (self.client, self.algorithm) = client_of(&given)?;
            self.establishments += 1;
        }
        let mut nonce = [0; 16];
        random.fill(&mut nonce);
        random.fill(&mut self.unique_id);
        let len = self.client.seal_request(header, &self.unique_id, &nonce, &mut self.room);
        if len == 0 {
            return Err("the cookies are too long for a request".to_owned());
        }
        Ok(&self.room[..len])
    }

    /// Whether this is an authentic reply to the last request; its cookies are kept.
    pub(crate) fn open(&mut self, reply: &[u8]) -> Result<(), ReplyFault> {
        self.client.open_reply(reply, &self.unique_id).map(drop)
    }

    /// What the result says of it.
    pub(crate) fn describe(&self) -> NtsUse {
        NtsUse {
            establishment: self.establishment.to_string(),
            algorithm: match self.algorithm {
                Algorithm::AesSivCmac256 => "AES-SIV-CMAC-256",
                Algorithm::Aes128GcmSiv => "AES-128-GCM-SIV",
            }
            .to_owned(),
            establishments: self.establishments,
        }
    }
}

/// The server that is to be asked: the target, unless key establishment names another one.
fn server_of(given: &Established, target: &TargetName) -> Result<TargetName, String> {
    let port = given.port.unwrap_or(target.port());
    match &given.server {
        None => Ok(target.with_port(port)),
        Some(host) => TargetName::parse(host, port).map_err(|error| error.to_string()),
    }
}

fn client_of(given: &Established) -> Result<(ClientSession, Algorithm), String> {
    let algorithm = Algorithm::from_number(given.algorithm)
        .ok_or_else(|| format!("the server chose algorithm {}", given.algorithm))?;
    let keys = SessionKeys::new(algorithm, &given.c2s, &given.s2c)
        .map_err(|error| format!("the server's keys are wrong: {error}"))?;
    Ok((ClientSession::new(&keys, given.cookies.iter().map(Vec::as_slice)), algorithm))
}

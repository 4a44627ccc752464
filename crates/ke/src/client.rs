//! The client of NTS key establishment. [`Exchange`] is the protocol without a connection: it runs
//! over any stream, blocking or not. [`KeClient`] holds what many exchanges share. Nothing is
//! retried, and no name is looked up.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use horolog_sys::listen::hold_back;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection};
use zeroize::Zeroizing;

use crate::algorithm::{AES_128_GCM_SIV, AES_SIV_CMAC_256, Agreed, Keys, key_len};
use crate::message::{Disagreement, Grant, RESPONSE_LEN_MAX, Request, Response};
use crate::records::message_len;
use crate::verifier::Remembering;
use crate::{ALPN, KeError, Trust};

/// What a server gave. The keys are wiped when it is dropped.
pub struct Established {
    /// Number of the AEAD algorithm.
    pub algorithm: u16,
    /// The key of what the client sends.
    pub c2s: Zeroizing<Vec<u8>>,
    /// The key of what the server sends.
    pub s2c: Zeroizing<Vec<u8>>,
    /// At least one.
    pub cookies: Vec<Vec<u8>>,
    /// The host to ask for the time, if it is another one.
    pub server: Option<String>,
    /// The UDP port to ask for the time, if it is not 123.
    pub port: Option<u16>,
}

impl fmt::Debug for Established {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Established")
            .field("algorithm", &self.algorithm)
            .field("cookies", &self.cookies.len())
            .field("server", &self.server)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Asks one server once: see [`KeClient`].
pub fn establish(
    target: &str,
    address: SocketAddr,
    trust: &Trust,
    algorithms: &[u16],
    timeout: Duration,
) -> Result<Established, KeError> {
    KeClient::new(trust, algorithms)?.establish(target, address, timeout)
}

/// What all exchanges with servers of the same trust share. Each has a full handshake.
#[derive(Clone)]
pub struct KeClient {
    config: Arc<ClientConfig>,
    request: Request,
}

impl KeClient {
    /// `algorithms` are numbers of AEAD algorithms, the most wanted first, of those that
    /// [`crate::key_len`] knows.
    pub fn new(trust: &Trust, algorithms: &[u16]) -> Result<Self, KeError> {
        if algorithms.is_empty() || algorithms.iter().any(|&one| key_len(one).is_none()) {
            let list = format!("{algorithms:?} is not a list of AEAD algorithms that NTS can use");
            return Err(KeError::Configuration(list));
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = Remembering::new(trust, &provider)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        let request = Request {
            ntpv4: true,
            algorithms: algorithms.to_vec(),
            exact_exporter: algorithms.contains(&AES_128_GCM_SIV),
        };
        Ok(Self { config: Arc::new(config), request })
    }

    /// Begins an exchange with a server whose certificate has to be one for `target`, a host name
    /// or an IP address.
    pub fn begin(&self, target: &str) -> Result<Exchange, KeError> {
        let name = ServerName::try_from(target.to_owned())
            .map_err(|_| KeError::BadName(target.to_owned()))?;
        let mut tls = ClientConnection::new(Arc::clone(&self.config), name)?;
        // It is kept until the handshake is done.
        let request = self.request.to_bytes();
        tls.writer()
            .write_all(&request)
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(Exchange { tls, offered: self.request.algorithms.clone(), response: Vec::new() })
    }

    /// Asks the server at `address` over a connection of its own, and blocks until it has answered
    /// or `timeout` is over.
    pub fn establish(
        &self,
        target: &str,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<Established, KeError> {
        let deadline = Instant::now() + timeout;
        let broken = |error: io::Error| match error.kind() {
            ErrorKind::TimedOut => KeError::TimedOut(address),
            _ => KeError::Connection { address, error },
        };
        let mut exchange = self.begin(target)?;
        let mut stream = TcpStream::connect_timeout(&address, timeout).map_err(broken)?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(KeError::TimedOut(address));
            }
            stream.set_read_timeout(Some(left)).map_err(broken)?;
            stream.set_write_timeout(Some(left)).map_err(broken)?;
            match exchange.advance(&mut stream) {
                Ok(Progress::Done(established)) => {
                    // If it cannot be had, the end takes a segment of its own.
                    let _ = hold_back(&stream);
                    exchange.close(&mut stream);
                    return Ok(*established);
                }
                Ok(Progress::Wants { .. }) => {}
                Err(KeError::Broken(error)) => return Err(broken(error)),
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Debug for KeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeClient").field("request", &self.request).finish_non_exhaustive()
    }
}

/// How far an exchange is.
#[derive(Debug)]
pub enum Progress {
    /// It goes on when the stream can be read, or, if so told, written.
    Wants {
        /// Whether there is something to write.
        write: bool,
    },
    /// It is done: [`Exchange::close`] tells the server, and then the connection can be closed.
    Done(Box<Established>),
}

/// One exchange in progress.
pub struct Exchange {
    tls: ClientConnection,
    offered: Vec<u16>,
    response: Vec<u8>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange").field("offered", &self.offered).finish_non_exhaustive()
    }
}

impl Exchange {
    /// Writes what there is to write, reads once, and takes what came. A stream that would block,
    /// or whose own time is over, is no error.
    ///
    /// # Errors
    ///
    /// [`KeError::Broken`] if the stream fails; the others are the server's doing.
    pub fn advance(&mut self, stream: &mut (impl Read + Write)) -> Result<Progress, KeError> {
        self.write(stream)?;
        match self.tls.read_tls(stream) {
            Ok(0) => return Err(KeError::Truncated),
            Ok(_) => {}
            Err(error) if is_for_later(&error) => return Ok(self.wants()),
            Err(error) => return Err(KeError::Broken(error)),
        }
        if let Err(error) = self.tls.process_new_packets() {
            // The server is told why, if it still listens.
            let _ = self.write(stream);
            return Err(error.into());
        }
        if !self.tls.is_handshaking() {
            if self.tls.alpn_protocol() != Some(ALPN) {
                return Err(KeError::NotNtsKe);
            }
            if let Some(length) = self.read_response()? {
                return self.finish(length).map(|done| Progress::Done(Box::new(done)));
            }
        }
        self.write(stream)?;
        Ok(self.wants())
    }

    /// Tells the server that nothing more will be sent (RFC 8446, section 6.1). Whether it still
    /// listens changes nothing.
    pub fn close(mut self, stream: &mut impl Write) {
        self.tls.send_close_notify();
        let _ = self.write(stream);
    }

    fn wants(&self) -> Progress {
        Progress::Wants { write: self.tls.wants_write() }
    }

    fn write(&mut self, stream: &mut impl Write) -> Result<(), KeError> {
        while self.tls.wants_write() {
            match self.tls.write_tls(stream) {
                Ok(_) => {}
                Err(error) if is_for_later(&error) => break,
                Err(error) => return Err(KeError::Broken(error)),
            }
        }
        Ok(())
    }

    /// Takes what came of the response; its length, once it is all there.
    fn read_response(&mut self) -> Result<Option<usize>, KeError> {
        let room = (RESPONSE_LEN_MAX + 1).saturating_sub(self.response.len());
        let ended = match self.tls.reader().take(room as u64).read_to_end(&mut self.response) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(_) => return Err(KeError::Truncated),
        };
        match message_len(&self.response) {
            Some(length) if length <= RESPONSE_LEN_MAX => Ok(Some(length)),
            _ if self.response.len() > RESPONSE_LEN_MAX => Err(KeError::TooLong),
            _ if ended => Err(KeError::Truncated),
            _ => Ok(None),
        }
    }

    fn finish(&self, length: usize) -> Result<Established, KeError> {
        let grant = match Response::parse(&self.response[..length])? {
            Response::Granted(grant) if self.offered.contains(&grant.algorithm) => grant,
            Response::Granted(_) | Response::Disagreed(Disagreement::Algorithm) => {
                return Err(KeError::NoAlgorithm);
            }
            Response::Disagreed(Disagreement::Protocol) => return Err(KeError::NoProtocol),
            Response::Error(code) => return Err(KeError::Refused { code }),
        };
        let keys = Keys::export(&self.tls, exporter(&grant))?;
        let Grant { algorithm, server, port, cookies, .. } = grant;
        Ok(Established { algorithm, c2s: keys.c2s, s2c: keys.s2c, cookies, server, port })
    }
}

/// A server that agrees to AES-128-GCM-SIV without a word about the exporter is taken for chrony
/// 4.4 to 4.6, as chrony itself takes it.
fn exporter(grant: &Grant) -> Agreed {
    let algorithm = grant.algorithm;
    let odd = algorithm == AES_128_GCM_SIV && !grant.exact_exporter;
    Agreed { algorithm, context: if odd { AES_SIV_CMAC_256 } else { algorithm } }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::{ServerConfig, ServerConnection, Stream};

    use super::*;
    use crate::certificate::certificates;
    use crate::testing::{Identity, PATIENCE};

    #[test]
    fn it_says_that_it_has_done() {
        let identity = Identity::new();
        let chain = certificates(&identity.certificate()).unwrap();
        let key = PrivateKeyDer::from_pem_file(identity.key()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
            let mut tls = Stream::new(&mut tls, &mut stream);
            assert!(tls.read(&mut [0; 1024]).unwrap() > 0, "the request");
            let response = Response::Granted(Grant {
                algorithm: AES_SIV_CMAC_256,
                exact_exporter: false,
                server: None,
                port: None,
                cookies: vec![vec![7; 100]],
            });
            tls.write_all(&response.to_bytes()).unwrap();
            // An end without close_notify is an error here.
            tls.read(&mut [0; 1024])
        });
        let client = KeClient::new(&identity.trust(), &[AES_SIV_CMAC_256]).unwrap();
        let got = client.establish("localhost", at, PATIENCE).unwrap();
        assert_eq!(got.cookies, [[7; 100]]);
        assert_eq!(server.join().unwrap().unwrap(), 0);
    }
}

//! gpsd as a character line: it is set to forward the receivers' sentences and, interleaved with
//! them, its own JSON reports, which contain leap seconds (`gpsd_json(5)`: `nmea` and `json` may be
//! combined). Sentences arrive later than over a serial line, by the delay of gpsd.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use horolog_sys::explain::explain;
use horolog_sys::zone;

use crate::SourceError;
use crate::gnss::{CharacterTransport, ReceiverLineReader};
use crate::gpsd;

const GPSD_TIMEOUT: Duration = Duration::from_millis(500);
const WATCH: &[u8] = b"?WATCH={\"enable\":true,\"nmea\":true,\"json\":true};\n";

/// Connection to gpsd, and its address in messages.
struct GpsdConnection(TcpStream, String);

impl CharacterTransport for GpsdConnection {
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        self.0.set_read_timeout(Some(wait))?;
        match self.0.read(buffer) {
            Ok(0) => {
                let text = format!("gpsd at {} closed the connection", self.1);
                Err(io::Error::new(ErrorKind::UnexpectedEof, text))
            }
            Ok(length) => Ok(Some(length)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    fn end_message(error: &io::Error) -> String {
        error.to_string()
    }

    fn has_reports(&self) -> bool {
        true
    }
}

/// Opens a reader of the sentences of the gpsd at `HOST:PORT`, which is resolved once. The
/// connection is retried, since gpsd may start later; the resolution is retried only if
/// `may_come_later`, otherwise its failure is the error.
pub(super) fn open(address: &str, may_come_later: bool) -> Result<ReceiverLineReader, SourceError> {
    let mut resolved = match resolve(address) {
        Err(fault) if !may_come_later => return Err(fault),
        result => result.unwrap_or_default(),
    };
    let name = address.to_owned();
    let mut connect = move || {
        if resolved.is_empty() {
            resolved = resolve(&name).map_err(io::Error::other)?;
        }
        connect(&resolved).map(|stream| GpsdConnection(stream, name.clone())).map_err(|error| {
            let why = explain(&error);
            let text = format!("gpsd at {name}: {why}; check that it runs and listens there");
            io::Error::new(error.kind(), text)
        })
    };
    Ok(ReceiverLineReader::prepare(connect(), connect))
}

/// Resolves the address `HOST:PORT`.
pub(super) fn resolve(address: &str) -> Result<Vec<SocketAddr>, SourceError> {
    let (host, port) = gpsd::split_address(address)?;
    zone::resolve(host, port).map_err(|error| {
        SourceError::Unusable(format!("gpsd at {address}: {error}; use a resolvable host name"))
    })
}

fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut error = io::Error::from(ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(address, GPSD_TIMEOUT) {
            Ok(mut stream) => {
                stream.set_write_timeout(Some(GPSD_TIMEOUT))?;
                stream.write_all(WATCH)?;
                return Ok(stream);
            }
            Err(connect_error) => error = connect_error,
        }
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn sentences_are_found_between_gpsd_s_reports() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = open(&listener.local_addr().unwrap().to_string(), false).unwrap();
        reader.take_input().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
        assert!(
            request.contains("\"nmea\":true") && request.contains("\"json\":true"),
            "{request}"
        );
        stream
            .write_all(
                b"{\"class\":\"DEVICES\"}\r\n$GPZDA,081253.00,27,02,2019,00,00*66\r\n\
                  {\"class\":\"TPV\",\"mode\":3,\"leapseconds\":18}\r\n",
            )
            .unwrap();
        let started = Instant::now();
        let input = loop {
            let input = reader.take_input().unwrap();
            if !input.sentences.is_empty() || started.elapsed() > Duration::from_secs(5) {
                break input;
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert_eq!((input.sentences.len(), input.counts.garbled), (1, 0));
        assert_eq!(input.leaps.len(), 1, "in one write, and read at once");
        assert_eq!(input.leaps[0].tai_minus_utc_s, 37);
    }

    #[test]
    fn a_gpsd_that_does_not_run_is_reported_and_retried() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut reader = open(&address.to_string(), false).unwrap();
        let mut until = |done: &dyn Fn(Option<&str>) -> bool| {
            let started = Instant::now();
            loop {
                let ended = reader.take_input().unwrap().ended;
                if done(ended.as_deref()) {
                    break;
                }
                assert!(started.elapsed() < Duration::from_secs(10), "{ended:?}");
                thread::sleep(Duration::from_millis(5));
            }
        };
        let expected = format!("gpsd at {address}");
        until(&|ended| ended.is_some_and(|why| why.starts_with(&expected)));
        let _listener = TcpListener::bind(address).unwrap();
        until(&|ended| ended.is_none());
        let fault = open("there.is.none.invalid:2947", false).err().unwrap().to_string();
        assert!(fault.contains("resolvable host name"), "{fault}");
    }
}

//! gpsd in the place of a line: asked for the sentences of its receivers, which it passes on, and
//! for reports of its own, which come between them and speak of leap seconds (its manual page
//! `gpsd_json`: `nmea` and `json` may both be asked for). Sentences come later than over the line
//! by as much as gpsd takes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::Fault;
use crate::gnss::{Line, Reader};

const PATIENCE: Duration = Duration::from_millis(500);
const WATCH: &[u8] = b"?WATCH={\"enable\":true,\"nmea\":true,\"json\":true};\n";

/// A connection to the gpsd of this name.
struct GpsdLine(TcpStream, String);

impl Line for GpsdLine {
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        self.0.set_read_timeout(Some(wait))?;
        match self.0.read(buffer) {
            Ok(0) => {
                let text = format!("gpsd at {} has closed the connection", self.1);
                Err(io::Error::new(ErrorKind::UnexpectedEof, text))
            }
            Ok(length) => Ok(Some(length)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    fn end(error: &io::Error) -> String {
        error.to_string()
    }

    fn has_reports(&self) -> bool {
        true
    }
}

/// What reads the sentences of the gpsd at `HOST:PORT`, whose name is resolved once. One that does
/// not run yet, as when a machine starts, is tried again and again.
pub(super) fn open(address: &str) -> Result<Reader, Fault> {
    let resolved = resolve(address)?;
    let name = address.to_owned();
    let connect = move || {
        connect(&resolved).map(|stream| GpsdLine(stream, name.clone())).map_err(|error| {
            let text = format!("gpsd at {name}: {error}; is it running, and listening there?");
            io::Error::new(error.kind(), text)
        })
    };
    Ok(Reader::of(connect(), connect))
}

/// What the address `HOST:PORT` stands for.
pub(super) fn resolve(address: &str) -> Result<Vec<SocketAddr>, Fault> {
    let resolved = address.to_socket_addrs().map_err(|error| {
        Fault::Unusable(format!("gpsd at {address}: {error}; name a host that can be looked up"))
    })?;
    Ok(resolved.collect())
}

fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut error = io::Error::from(ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(address, PATIENCE) {
            Ok(mut stream) => {
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.write_all(WATCH)?;
                return Ok(stream);
            }
            Err(refused) => error = refused,
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
        let mut reader = open(&listener.local_addr().unwrap().to_string()).unwrap();
        reader.take().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut asked).unwrap();
        assert!(asked.contains("\"nmea\":true") && asked.contains("\"json\":true"), "{asked}");
        stream
            .write_all(
                b"{\"class\":\"DEVICES\"}\r\n$GPZDA,081253.00,27,02,2019,00,00*66\r\n\
                  {\"class\":\"TPV\",\"mode\":3,\"leapseconds\":18}\r\n",
            )
            .unwrap();
        let started = Instant::now();
        let heard = loop {
            let heard = reader.take().unwrap();
            if !heard.sentences.is_empty() || started.elapsed() > Duration::from_secs(5) {
                break heard;
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert_eq!((heard.sentences.len(), heard.counts.garbled), (1, 0));
        assert_eq!(heard.leaps.len(), 1, "in one write, and read at once");
        assert_eq!(heard.leaps[0].tai_minus_utc_s, 37);
    }

    #[test]
    fn where_it_does_not_run_that_is_said_and_it_is_tried_again() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut reader = open(&address.to_string()).unwrap();
        let mut until = |done: &dyn Fn(Option<&str>) -> bool| {
            let started = Instant::now();
            loop {
                let ended = reader.take().unwrap().ended;
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
        let fault = open("there.is.none.invalid:2947").err().unwrap().to_string();
        assert!(fault.contains("can be looked up"), "{fault}");
    }
}

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

/// A connection to gpsd.
struct GpsdLine(TcpStream);

impl Line for GpsdLine {
    fn read(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        self.0.set_read_timeout(Some(wait))?;
        match self.0.read(buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => Ok(Some(length)),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }

    fn has_reports(&self) -> bool {
        true
    }
}

/// What reads the sentences of the gpsd at `HOST:PORT`, whose name is resolved once.
pub(super) fn open(address: &str) -> Result<Reader, Fault> {
    let failed = |error: io::Error| {
        Fault::Unusable(format!("gpsd at {address}: {error}; is it running, and listening there?"))
    };
    let resolved: Vec<_> = address.to_socket_addrs().map_err(failed)?.collect();
    let line = connect(&resolved).map_err(failed)?;
    Ok(Reader::new(line, move || connect(&resolved)))
}

fn connect(addresses: &[SocketAddr]) -> io::Result<GpsdLine> {
    let mut error = io::Error::from(ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(address, PATIENCE) {
            Ok(mut stream) => {
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.write_all(WATCH)?;
                return Ok(GpsdLine(stream));
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
    fn where_it_does_not_run_that_is_said() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let fault = open(&closed).err().unwrap().to_string();
        assert!(fault.starts_with(&format!("gpsd at {closed}")), "{fault}");
    }
}

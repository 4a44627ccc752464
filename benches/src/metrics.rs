//! Somebody who reads a server's metrics while it is measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::LabHost;

/// Interval of scrapes; Prometheus scrapes about every 15 s.
const EVERY: Duration = Duration::from_secs(1);
/// A flood leaves little time to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A thread that reads them once a second.
pub(crate) struct MetricsReader {
    /// Closing it ends the thread.
    goes_on: Sender<()>,
    thread: JoinHandle<Result<()>>,
}

impl MetricsReader {
    /// Reads them at this address in `host`, from now on.
    pub(crate) fn start(host: &LabHost, at: SocketAddr) -> Result<Self> {
        let (goes_on, ended) = mpsc::channel();
        let read = move || {
            loop {
                read_once(at).context("cannot read the metrics")?;
                if ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Disconnected) {
                    return Ok(());
                }
            }
        };
        let thread = host.run(|| thread::Builder::new().spawn(read))??;
        Ok(Self { goes_on, thread })
    }

    /// Ends it, and fails if a scrape failed.
    pub(crate) fn finish(self) -> Result<()> {
        drop(self.goes_on);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn read_once(at: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&at, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    ensure!(
        reply.starts_with("HTTP/1.0 200") && reply.contains("horolog_replies_total"),
        "{reply}"
    );
    Ok(())
}

//! Scrapes of a server's metrics during a measurement.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use horolog_lab::LabHost;

/// Interval of scrapes; Prometheus scrapes about every 15 s.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of a connection and of a response; a flood leaves little CPU time for either.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Thread that scrapes the metrics once a second.
pub(crate) struct MetricsReader {
    /// Sender whose drop ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<Result<()>>,
}

impl MetricsReader {
    /// Starts to scrape the metrics at the address `at` in `host`.
    pub(crate) fn start(host: &LabHost, at: SocketAddr) -> Result<Self> {
        let (stop, ended) = mpsc::channel();
        let read = move || {
            loop {
                read_once(at).context("cannot read the metrics")?;
                if ended.recv_timeout(SCRAPE_INTERVAL) == Err(RecvTimeoutError::Disconnected) {
                    return Ok(());
                }
            }
        };
        let thread = host.run(|| thread::Builder::new().spawn(read))??;
        Ok(Self { stop, thread })
    }

    /// Ends the thread; fails if a scrape failed.
    pub(crate) fn finish(self) -> Result<()> {
        drop(self.stop);
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
        "unexpected response: {reply}"
    );
    Ok(())
}

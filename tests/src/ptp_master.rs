//! PTP master that answers by a rule, in its own thread: it limits its clients by their addresses,
//! or answers more requests than ptp4l can.

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use horolog_lab::Lab;
use horolog_wire::ptp::{EVENT_PORT, GENERAL_PORT};

use crate::ptp_messages::{PtpRequest, SourceSocket};

/// Pause while no request arrives.
const PAUSE: Duration = Duration::from_micros(200);

/// Rule that returns true for requests to answer: by the index of the client, in the order of first
/// requests, and the number of this client's requests.
pub(crate) type Rule = fn(client: usize, requests: u32) -> bool;

/// Running master, which stops when dropped.
pub(crate) struct Master {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Master {
    /// Starts a master on an address of the server's host.
    pub(crate) fn start(lab: &Lab, at: IpAddr, rule: Rule) -> Result<Self> {
        let bind = || [EVENT_PORT, GENERAL_PORT].map(|port| UdpSocket::bind((at, port)));
        let [event, general] = lab.server().run(bind)?;
        let sockets = [event?, general?];
        sockets.iter().try_for_each(|socket| socket.set_nonblocking(true))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || serve(&sockets, rule, &stopped));
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve([event, general]: &[UdpSocket; 2], rule: Rule, stop: &AtomicBool) {
    let mut known: HashMap<IpAddr, (usize, u32)> = HashMap::new();
    let mut buffer = [0; 256];
    while !stop.load(Ordering::Relaxed) {
        let received = [event, general].into_iter().find_map(|one| one.recv_from(&mut buffer).ok());
        let Some((length, from)) = received else {
            thread::sleep(PAUSE);
            continue;
        };
        let Some(request) = PtpRequest::parse(&buffer[..length], from) else { continue };
        let before = known.len();
        let (client, requests) = known.entry(from.ip()).or_insert((before, 0));
        *requests += 1;
        if !rule(*client, *requests) {
            continue;
        }
        for answer in request.correct_response() {
            let socket = if answer.from == SourceSocket::Event { event } else { general };
            // The client may have ended.
            let _ = socket.send_to(&answer.payload, answer.to);
        }
    }
}

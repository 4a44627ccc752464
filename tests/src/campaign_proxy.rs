//! Loss of a broker's response: a proxy before a NATS server forwards a client's messages one by
//! one, and at a selected one closes the connection after the server has received it, before any
//! response, and refuses connections for a while.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use horolog_lab::LabHost;

use crate::campaign_lab::NATS_PORT;

/// Port of the proxy.
pub(crate) const PROXY_PORT: u16 = 4_333;
/// Longer than the reaction of a server to a received message.
const REACTION_TIME: Duration = Duration::from_millis(300);

/// Message whose response is lost, and the outage after it.
#[derive(Clone, Debug)]
pub(crate) struct ResponseLoss {
    /// Subject of the counted messages.
    pub(crate) subject: String,
    /// Number of the message among them, from 1.
    pub(crate) number: usize,
    /// Duration without connections through the proxy.
    pub(crate) outage: Duration,
}

/// Opens the proxy in a host, until the process ends.
pub(crate) fn open_proxy(host: &LabHost, loss: ResponseLoss) -> Result<()> {
    let listener = host.run(|| TcpListener::bind(("127.0.0.1", PROXY_PORT)))??;
    let netns = host.netns.clone();
    thread::spawn(move || {
        let counted = Arc::new(AtomicUsize::new(0));
        for client in listener.incoming() {
            let server = netns.run(|| TcpStream::connect(("127.0.0.1", NATS_PORT)));
            let (Ok(client), Ok(Ok(server))) = (client, server) else { continue };
            // A client without a connection to the server is closed above.
            if !matches!(forward(&client, &server, &loss, &counted), Ok(false)) {
                thread::sleep(loss.outage);
            }
        }
    });
    Ok(())
}

/// Forwards messages until one end closes or the selected message was sent; returns true for the
/// latter.
fn forward(
    client: &TcpStream,
    server: &TcpStream,
    loss: &ResponseLoss,
    counted: &AtomicUsize,
) -> Result<bool> {
    let drops_responses = Arc::new(AtomicBool::new(false));
    let (mut from, mut to, is_deaf) =
        (server.try_clone()?, client.try_clone()?, drops_responses.clone());
    let back = thread::spawn(move || -> Result<()> {
        let mut bytes = [0; 4_096];
        loop {
            let length = from.read(&mut bytes)?;
            if length == 0 || is_deaf.load(Ordering::SeqCst) {
                return Ok(to.shutdown(Shutdown::Both)?);
            }
            to.write_all(&bytes[..length])?;
        }
    });
    let mut reader = BufReader::new(client.try_clone()?);
    let mut has_lost = false;
    while let Some(message) = message(&mut reader)? {
        let is_counted = message.subject == loss.subject;
        has_lost = is_counted && counted.fetch_add(1, Ordering::SeqCst) + 1 == loss.number;
        drops_responses.fetch_or(has_lost, Ordering::SeqCst);
        let mut server = server;
        server.write_all(&message.bytes)?;
        if has_lost {
            thread::sleep(REACTION_TIME);
            break;
        }
    }
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    let _ = back.join();
    Ok(has_lost)
}

/// Line of a client with the payload that it publishes.
struct Message {
    subject: String,
    bytes: Vec<u8>,
}

fn message(reader: &mut impl BufRead) -> Result<Option<Message>> {
    let mut bytes = Vec::new();
    if reader.read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    let line = String::from_utf8_lossy(&bytes).into_owned();
    let words: Vec<_> = line.split_whitespace().collect();
    if !words.first().is_some_and(|word| ["PUB", "HPUB"].contains(word)) {
        return Ok(Some(Message { subject: String::new(), bytes }));
    }
    let length: usize = words.last().context("no length")?.parse()?;
    let begin = bytes.len();
    bytes.resize(begin + length + 2, 0);
    reader.read_exact(&mut bytes[begin..])?;
    Ok(Some(Message { subject: words.get(1).context("no subject")?.to_string(), bytes }))
}

//! A broker's connection that loses an answer: a proxy before a NATS server which hands a client's
//! messages on one by one, and at one of them closes the connection when the server has it, before
//! anything of what follows, and stays away for a while.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use horolog_lab::LabHost;

use crate::campaign_lab::NATS_PORT;

/// Where the proxy listens.
pub(crate) const PROXY_PORT: u16 = 4_333;
/// Longer than a server takes to act upon a message that it has.
const ACTING: Duration = Duration::from_millis(300);

/// Which message is the last, and how long nobody is let in then.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    /// The subject of the messages that are counted.
    pub(crate) subject: String,
    /// Which of them it is, from 1 on.
    pub(crate) number: usize,
    /// How long the proxy stays away.
    pub(crate) away: Duration,
}

/// Opens the proxy in a host. It lasts as long as the scenarios.
pub(crate) fn open(host: &LabHost, loss: Loss) -> Result<()> {
    let listener = host.run(|| TcpListener::bind(("127.0.0.1", PROXY_PORT)))??;
    let netns = host.netns.clone();
    thread::spawn(move || {
        let counted = Arc::new(AtomicUsize::new(0));
        for client in listener.incoming() {
            let server = netns.run(|| TcpStream::connect(("127.0.0.1", NATS_PORT)));
            let (Ok(client), Ok(Ok(server))) = (client, server) else { continue };
            // Whoever is not let in is told so by the end of the connection.
            if !matches!(join(&client, &server, &loss, &counted), Ok(false)) {
                thread::sleep(loss.away);
            }
        }
    });
    Ok(())
}

/// Hands on until one end closes, or the message comes; then it says so.
fn join(
    client: &TcpStream,
    server: &TcpStream,
    loss: &Loss,
    counted: &AtomicUsize,
) -> Result<bool> {
    let deaf = Arc::new(AtomicBool::new(false));
    let (mut from, mut to, is_deaf) = (server.try_clone()?, client.try_clone()?, deaf.clone());
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
        deaf.fetch_or(has_lost, Ordering::SeqCst);
        let mut server = server;
        server.write_all(&message.bytes)?;
        if has_lost {
            thread::sleep(ACTING);
            break;
        }
    }
    let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    let _ = back.join();
    Ok(has_lost)
}

/// A line of a client, with what is published by it.
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

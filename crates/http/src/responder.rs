//! A small HTTP/1.0 responder for one thread: it answers GET, closes, and holds little for anyone.
//!
//! It is written here because of its bounds: a library such as `tiny_http` has a thread for each
//! connection and no time limit on reading, so that clients who send slowly, or nothing, take all
//! there is. Here each connection has [`LIFE`] in all, requests end at [`REQUEST_BYTES_MAX`], and
//! of more than [`CONNECTIONS_MAX`] connections the oldest goes; who asks and reads is served
//! meanwhile.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_sys::epoll::Epoll;
use zeroize::Zeroizing;

use crate::request::is_whole;
use crate::{Answer, Request};

/// How long a connection may last.
const LIFE: Duration = Duration::from_secs(3);
/// How many there may be at a time.
const CONNECTIONS_MAX: usize = 32;
/// A request with more than this before its empty line is refused.
const REQUEST_BYTES_MAX: usize = 4_096;
/// After a reply, at most so much of what still comes is read.
const DROPPED_BYTES_MAX: usize = 1 << 20;
/// How often open connections are looked at; with none open, nothing happens.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const IDLE: Duration = Duration::from_hours(1);
const CAME: u64 = 0;
const STOPPED: u64 = 1;

/// A thread that answers at an address until it is dropped.
#[derive(Debug)]
pub struct Responder {
    /// Closing it stops the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Answers who connects to `listener` with what `answer` returns for a request, in a thread of
    /// this name.
    pub fn start(
        name: &str,
        listener: TcpListener,
        answer: impl Fn(&Request<'_>) -> Answer + Send + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (alive, closed) = UnixStream::pair()?;
        let mut events = Epoll::new(2)?;
        events.add(listener.as_fd(), CAME)?;
        events.add(closed.as_fd(), STOPPED)?;
        let serve = move || {
            let _closed = closed;
            let mut open = VecDeque::new();
            loop {
                let wait = if open.is_empty() { IDLE } else { LOOK_EVERY };
                match events.wait(wait).map(|mut tokens| tokens.any(|token| token == STOPPED)) {
                    Ok(false) => turn(&listener, &mut open, &answer),
                    _ => break,
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(serve)?;
        Ok(Self { alive: Some(alive), thread: Some(thread) })
    }
}

impl Responder {
    /// Whether the thread has ended without being told to.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so on stderr; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

fn turn(
    listener: &TcpListener,
    open: &mut VecDeque<Connection>,
    answer: &impl Fn(&Request<'_>) -> Answer,
) {
    let came = match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        // Such as no descriptor left: a new look later, not at once.
        Err(_) => {
            thread::sleep(LOOK_EVERY);
            None
        }
    };
    if let Some(stream) = came.filter(|stream| stream.set_nonblocking(true).is_ok()) {
        if open.len() >= CONNECTIONS_MAX {
            open.pop_front();
        }
        open.push_back(Connection::new(stream));
    }
    open.retain_mut(|connection| connection.step(answer).is_ok());
}

struct Connection {
    stream: TcpStream,
    ends: Instant,
    state: State,
}

enum State {
    /// It comes.
    Asking { request: Buffer, length: usize },
    /// The reply goes.
    Answering { reply: Vec<u8>, sent: usize },
    /// It is answered; what still comes is dropped.
    Answered { dropped: usize },
}

/// A request, which may hold a secret. It never moves to other memory, and is wiped.
type Buffer = Box<Zeroizing<[u8; REQUEST_BYTES_MAX]>>;

impl Connection {
    fn new(stream: TcpStream) -> Self {
        let request = Box::new(Zeroizing::new([0; REQUEST_BYTES_MAX]));
        let state = State::Asking { request, length: 0 };
        Self { stream, ends: Instant::now() + LIFE, state }
    }

    /// Does what can be done without waiting. An error is the end of the connection, which may as
    /// well be a good one.
    fn step(&mut self, answer: &impl Fn(&Request<'_>) -> Answer) -> io::Result<()> {
        if Instant::now() >= self.ends {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.proceed(answer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }

    fn proceed(&mut self, answer: &impl Fn(&Request<'_>) -> Answer) -> io::Result<()> {
        loop {
            match &mut self.state {
                State::Asking { request, length } => {
                    read_request(&mut self.stream, &mut request[..], length)?;
                    let reply = respond(&request[..*length], answer);
                    self.state = State::Answering { reply, sent: 0 };
                }
                State::Answering { reply, sent } => {
                    write_rest(&mut self.stream, reply, sent)?;
                    self.stream.shutdown(Shutdown::Write)?;
                    self.state = State::Answered { dropped: 0 };
                }
                State::Answered { dropped } => return drop_rest(&mut self.stream, dropped),
            }
        }
    }
}

/// Reads until the request is there, the other side has no more, or there is no room.
fn read_request(stream: &mut TcpStream, request: &mut [u8], length: &mut usize) -> io::Result<()> {
    while *length < request.len() {
        let came = stream.read(&mut request[*length..])?;
        *length += came;
        if came == 0 || is_whole(&request[..*length]) {
            break;
        }
    }
    Ok(())
}

fn write_rest(stream: &mut TcpStream, reply: &[u8], sent: &mut usize) -> io::Result<()> {
    while *sent < reply.len() {
        match stream.write(&reply[*sent..])? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            length => *sent += length,
        }
    }
    Ok(())
}

/// Reads and forgets until the other side has read the reply and closes, which is an error as any
/// end is. A socket closed with something unread in it makes the kernel send a reset, at which the
/// other side may throw the reply away (RFC 9112, section 9.6).
fn drop_rest(stream: &mut TcpStream, dropped: &mut usize) -> io::Result<()> {
    let mut buffer = [0; 4_096];
    while *dropped < DROPPED_BYTES_MAX {
        match stream.read(&mut buffer)? {
            0 => break,
            length => *dropped += length,
        }
    }
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// The bytes that are sent for the bytes of a request: what `answer` returns where it is for a
/// page, and a refusal else.
#[must_use]
pub fn respond(request: &[u8], answer: &impl Fn(&Request<'_>) -> Answer) -> Vec<u8> {
    match Request::parse(request) {
        Ok(request) => answer(&request).to_bytes(!request.head),
        Err(refusal) => refusal.to_bytes(true),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn responder() -> (Responder, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = |request: &Request<'_>| Answer::text(200, request.path);
        (Responder::start("pages", listener, answer).unwrap(), address)
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(2 * LIFE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    #[test]
    fn requests_are_answered_by_path() {
        let (_responder, address) = responder();
        let reply = ask(address, "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.0 200 OK\r\n"), "{reply}");
        assert!(reply.contains("Content-Length: 8\r\n") && reply.ends_with("\r\n\r\n/metrics"));
        assert!(ask(address, "HEAD / HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(ask(address, "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.0 405"));
        assert!(ask(address, "GET /\r\n\r\n").starts_with("HTTP/1.0 400"));
        assert!(ask(address, &"x".repeat(5_000)).starts_with("HTTP/1.0 400"));
    }

    #[test]
    fn slow_clients_keep_nobody_waiting() {
        let (_responder, address) = responder();
        let connect = |_| TcpStream::connect(address).unwrap();
        let mut slow: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX).map(connect).collect();
        for stream in &mut slow {
            // The oldest may be gone already.
            let _ = stream.write_all(b"GET / HT");
        }
        let started = Instant::now();
        assert!(ask(address, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("/healthz"));
        assert!(started.elapsed() < LIFE, "waited for the slow ones");
    }

    #[test]
    fn who_sends_more_than_is_read_gets_the_reply() {
        let (_responder, address) = responder();
        let long = "x".repeat(50_000);
        let post = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{long}", long.len());
        for (request, code) in [(long, "400"), (post, "405")] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(2 * LIFE)).unwrap();
            for piece in request.as_bytes().chunks(10_000) {
                stream.write_all(piece).unwrap();
                // The responder sees it in pieces as well, and has answered before the last.
                thread::sleep(4 * LOOK_EVERY);
            }
            let mut reply = String::new();
            stream.read_to_string(&mut reply).unwrap();
            assert!(reply.starts_with(&format!("HTTP/1.0 {code}")), "{reply}");
        }
    }

    #[test]
    fn what_comes_after_the_reply_has_an_end() {
        let (_responder, address) = responder();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_write_timeout(Some(10 * LIFE)).unwrap();
        let piece = [b'x'; 10_000];
        let most = 100 * DROPPED_BYTES_MAX / piece.len();
        assert!((0..most).any(|_| stream.write_all(&piece).is_err()));
    }

    /// How long it takes until a connection is closed or reset, on which this was sent.
    fn time_to_end(address: SocketAddr, request: &str) -> Duration {
        let started = Instant::now();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(10 * LIFE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        started.elapsed()
    }

    #[test]
    fn a_connection_ends_in_time() {
        let (_responder, address) = responder();
        for request in ["", "GET / HT"] {
            let took = time_to_end(address, request);
            assert!(took < 3 * LIFE, "{request:?}: {took:?}");
        }
    }
}

//! Small HTTP/1.0 responder for one thread: it answers GET, closes, and holds little for any
//! client.
//!
//! It exists because of its bounds: a library such as `tiny_http` has a thread for each connection
//! and no timeout on reading, so clients that send slowly, or nothing, use up all resources. Here
//! each connection has [`LIFE`] in all, requests end at [`REQUEST_BYTES_MAX`], and beyond
//! [`CONNECTIONS_MAX`] connections the oldest is closed; clients that send and read are served
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
use crate::{HttpRequest, HttpResponse};

/// Longest duration of a connection.
const LIFE: Duration = Duration::from_secs(3);
/// Greatest number of simultaneous connections.
const CONNECTIONS_MAX: usize = 32;
/// A request with more than this before its empty line is refused.
const REQUEST_BYTES_MAX: usize = 4_096;
/// Greatest number of bytes read after a reply.
const DROPPED_BYTES_MAX: usize = 1 << 20;
/// Polling interval of open connections; with none open, nothing happens.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const IDLE: Duration = Duration::from_hours(1);
const INCOMING: u64 = 0;
const STOPPED: u64 = 1;

/// A thread that answers at an address until it is dropped.
#[derive(Debug)]
pub struct HttpResponder {
    /// Closing it stops the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl HttpResponder {
    /// Answers each client of `listener` with the value of `answer` for its request, in a thread of
    /// this name.
    pub fn start(
        name: &str,
        listener: TcpListener,
        answer: impl Fn(&HttpRequest<'_>) -> HttpResponse + Send + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (alive, closed) = UnixStream::pair()?;
        let mut events = Epoll::new(2)?;
        events.add(listener.as_fd(), INCOMING)?;
        events.add(closed.as_fd(), STOPPED)?;
        let serve = move || {
            let _closed = closed;
            let mut open = VecDeque::new();
            loop {
                let wait = if open.is_empty() { IDLE } else { POLL_INTERVAL };
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

impl HttpResponder {
    /// Returns true if the thread has ended although it was not stopped.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for HttpResponder {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A panicked thread has printed its message on stderr; there is nothing to add here.
            let _ = thread.join();
        }
    }
}

fn turn(
    listener: &TcpListener,
    open: &mut VecDeque<HttpConnection>,
    answer: &impl Fn(&HttpRequest<'_>) -> HttpResponse,
) {
    let accepted = match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        // For instance no free descriptor: try again later, not at once.
        Err(_) => {
            thread::sleep(POLL_INTERVAL);
            None
        }
    };
    if let Some(stream) = accepted.filter(|stream| stream.set_nonblocking(true).is_ok()) {
        if open.len() >= CONNECTIONS_MAX {
            open.pop_front();
        }
        open.push_back(HttpConnection::new(stream));
    }
    open.retain_mut(|connection| connection.step(answer).is_ok());
}

struct HttpConnection {
    stream: TcpStream,
    ends: Instant,
    state: RequestState,
}

enum RequestState {
    /// The request is being received.
    Receiving { request: Buffer, length: usize },
    /// The reply is being sent.
    Answering { reply: Vec<u8>, sent: usize },
    /// The reply has been sent; further input is dropped.
    Answered { dropped: usize },
}

/// Buffer of a request, which may hold a secret. It never moves to other memory, and is wiped.
type Buffer = Box<Zeroizing<[u8; REQUEST_BYTES_MAX]>>;

impl HttpConnection {
    fn new(stream: TcpStream) -> Self {
        let request = Box::new(Zeroizing::new([0; REQUEST_BYTES_MAX]));
        let state = RequestState::Receiving { request, length: 0 };
        Self { stream, ends: Instant::now() + LIFE, state }
    }

    /// Makes all progress possible without waiting. An error is the end of the connection, which
    /// may well be a normal one.
    fn step(&mut self, answer: &impl Fn(&HttpRequest<'_>) -> HttpResponse) -> io::Result<()> {
        if Instant::now() >= self.ends {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.proceed(answer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            done => done,
        }
    }

    fn proceed(&mut self, answer: &impl Fn(&HttpRequest<'_>) -> HttpResponse) -> io::Result<()> {
        loop {
            match &mut self.state {
                RequestState::Receiving { request, length } => {
                    read_request(&mut self.stream, &mut request[..], length)?;
                    let reply = respond(&request[..*length], answer);
                    self.state = RequestState::Answering { reply, sent: 0 };
                }
                RequestState::Answering { reply, sent } => {
                    write_rest(&mut self.stream, reply, sent)?;
                    self.stream.shutdown(Shutdown::Write)?;
                    self.state = RequestState::Answered { dropped: 0 };
                }
                RequestState::Answered { dropped } => return drop_rest(&mut self.stream, dropped),
            }
        }
    }
}

/// Reads until the request is complete, the peer has sent everything, or the buffer is full.
fn read_request(stream: &mut TcpStream, request: &mut [u8], length: &mut usize) -> io::Result<()> {
    while *length < request.len() {
        let received = stream.read(&mut request[*length..])?;
        *length += received;
        if received == 0 || is_whole(&request[..*length]) {
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

/// Reads and discards until the client has read the reply and closes, which is an error as any end
/// is. If a socket is closed with unread input, the kernel sends a reset, at which the client may
/// discard the reply (RFC 9112, section 9.6).
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

/// The bytes to send in response to the bytes of a request: the value of `answer` if it is for a
/// page, and a refusal otherwise.
#[must_use]
pub fn respond(request: &[u8], answer: &impl Fn(&HttpRequest<'_>) -> HttpResponse) -> Vec<u8> {
    match HttpRequest::parse(request) {
        Ok(request) => answer(&request).to_bytes(!request.head),
        Err(refusal) => refusal.to_bytes(true),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn responder() -> (HttpResponder, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = |request: &HttpRequest<'_>| HttpResponse::text(200, request.path);
        (HttpResponder::start("pages", listener, answer).unwrap(), address)
    }

    fn response_to(address: SocketAddr, request: &str) -> String {
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
        let reply = response_to(address, "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(reply.starts_with("HTTP/1.0 200 OK\r\n"), "{reply}");
        assert!(reply.contains("Content-Length: 8\r\n") && reply.ends_with("\r\n\r\n/metrics"));
        assert!(response_to(address, "HEAD / HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
        assert!(response_to(address, "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.0 405"));
        assert!(response_to(address, "GET /\r\n\r\n").starts_with("HTTP/1.0 400"));
        assert!(response_to(address, &"x".repeat(5_000)).starts_with("HTTP/1.0 400"));
    }

    #[test]
    fn slow_clients_do_not_delay_others() {
        let (_responder, address) = responder();
        let connect = |_| TcpStream::connect(address).unwrap();
        let mut slow: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX).map(connect).collect();
        for stream in &mut slow {
            // The oldest may be gone already.
            let _ = stream.write_all(b"GET / HT");
        }
        let started = Instant::now();
        assert!(response_to(address, "GET /healthz HTTP/1.0\r\n\r\n").ends_with("/healthz"));
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
                thread::sleep(4 * POLL_INTERVAL);
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

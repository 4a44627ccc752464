//! Small HTTP/1.0 server in one thread: it responds to GET and HEAD, closes each connection, and
//! limits the resources of each client.
//!
//! Libraries such as `tiny_http` have a thread for each connection and no timeout on reading, so
//! clients that send slowly or nothing exhaust their resources. Here a connection lasts
//! [`CONNECTION_LIFETIME`] at most, a request has [`REQUEST_BYTES_MAX`] at most, and beyond
//! [`CONNECTIONS_MAX`] connections the oldest is closed. Sockets are non-blocking, so a slow client
//! does not delay the others.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use horolog_sys::epoll::Epoll;
use zeroize::Zeroizing;

use crate::request::is_complete;
use crate::{HttpRequest, HttpResponse};

/// Longest lifetime of a connection, after which it is closed in any state.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(3);
/// Largest number of simultaneous connections; beyond it the oldest is closed.
const CONNECTIONS_MAX: usize = 32;
/// Largest length of a request up to its empty line, in bytes; a longer one is refused with status
/// 400.
const REQUEST_BYTES_MAX: usize = 4_096;
/// Largest number of bytes of a client that are discarded after the response; beyond them the
/// connection is closed.
const DISCARDED_BYTES_MAX: usize = 1 << 20;
/// Polling interval while connections are open; without any, the thread sleeps in epoll.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const IDLE_WAIT: Duration = Duration::from_hours(1);
const LISTENER_TOKEN: u64 = 0;
const STOP_TOKEN: u64 = 1;

/// HTTP server in a thread, which responds until this value is dropped.
#[derive(Debug)]
pub struct HttpResponder {
    /// Stream that stops the thread when it is closed; `None` only while the value is dropped.
    stop_stream: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl HttpResponder {
    /// Responds to each client of `listener` with the value of `handler` for its request, in a
    /// thread with this name. Requests that are invalid are refused without a call of `handler`.
    pub fn start(
        name: &str,
        listener: TcpListener,
        handler: impl Fn(&HttpRequest<'_>) -> HttpResponse + Send + 'static,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let (stop_stream, stop_event) = UnixStream::pair()?;
        let mut events = Epoll::new(2)?;
        events.add(listener.as_fd(), LISTENER_TOKEN)?;
        events.add(stop_event.as_fd(), STOP_TOKEN)?;
        let serve = move || {
            let _closed = stop_event;
            let mut connections = VecDeque::new();
            loop {
                let wait = if connections.is_empty() { IDLE_WAIT } else { POLL_INTERVAL };
                match events.wait(wait).map(|mut tokens| tokens.any(|token| token == STOP_TOKEN)) {
                    Ok(false) => serve_once(&listener, &mut connections, &handler),
                    _ => break,
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(serve)?;
        Ok(Self { stop_stream: Some(stop_stream), thread: Some(thread) })
    }
}

impl HttpResponder {
    /// Returns true if the thread has ended without being stopped.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

impl Drop for HttpResponder {
    fn drop(&mut self) {
        drop(self.stop_stream.take());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has already printed its message.
            let _ = thread.join();
        }
    }
}

fn serve_once(
    listener: &TcpListener,
    connections: &mut VecDeque<HttpConnection>,
    handler: &impl Fn(&HttpRequest<'_>) -> HttpResponse,
) {
    let accepted = match listener.accept() {
        Ok((stream, _)) => Some(stream),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        // For instance, no file descriptor is free: pause before the next attempt.
        Err(_) => {
            thread::sleep(POLL_INTERVAL);
            None
        }
    };
    if let Some(stream) = accepted.filter(|stream| stream.set_nonblocking(true).is_ok()) {
        if connections.len() >= CONNECTIONS_MAX {
            connections.pop_front();
        }
        connections.push_back(HttpConnection::new(stream));
    }
    connections.retain_mut(|connection| connection.advance(handler).is_ok());
}

struct HttpConnection {
    stream: TcpStream,
    deadline: Instant,
    state: ConnectionState,
}

enum ConnectionState {
    /// Receiving the request, of which `length` bytes have arrived.
    Receiving { request: RequestBuffer, length: usize },
    /// Sending the response, of which `sent` bytes have been written.
    Sending { response: Vec<u8>, sent: usize },
    /// The response has been sent; further input is discarded.
    Draining { discarded: usize },
}

/// Buffer of a request, which may contain a secret: it is never moved, and it is wiped on drop.
type RequestBuffer = Box<Zeroizing<[u8; REQUEST_BYTES_MAX]>>;

impl HttpConnection {
    fn new(stream: TcpStream) -> Self {
        let request = Box::new(Zeroizing::new([0; REQUEST_BYTES_MAX]));
        let state = ConnectionState::Receiving { request, length: 0 };
        Self { stream, deadline: Instant::now() + CONNECTION_LIFETIME, state }
    }

    /// Advances the connection as far as possible without waiting. Any error, including the normal
    /// end and the end of its lifetime, closes the connection.
    fn advance(&mut self, handler: &impl Fn(&HttpRequest<'_>) -> HttpResponse) -> io::Result<()> {
        if Instant::now() >= self.deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.advance_states(handler) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    fn advance_states(
        &mut self,
        handler: &impl Fn(&HttpRequest<'_>) -> HttpResponse,
    ) -> io::Result<()> {
        loop {
            match &mut self.state {
                ConnectionState::Receiving { request, length } => {
                    read_request(&mut self.stream, &mut request[..], length)?;
                    let response = respond(&request[..*length], handler);
                    self.state = ConnectionState::Sending { response, sent: 0 };
                }
                ConnectionState::Sending { response, sent } => {
                    write_response(&mut self.stream, response, sent)?;
                    self.stream.shutdown(Shutdown::Write)?;
                    self.state = ConnectionState::Draining { discarded: 0 };
                }
                ConnectionState::Draining { discarded } => {
                    return discard_input(&mut self.stream, discarded);
                }
            }
        }
    }
}

/// Reads until the request is complete, the client has sent everything, or the buffer is full.
/// `length` is the number of bytes read so far; an error of kind `WouldBlock` means that more must
/// be awaited.
fn read_request(stream: &mut TcpStream, request: &mut [u8], length: &mut usize) -> io::Result<()> {
    while *length < request.len() {
        let received = stream.read(&mut request[*length..])?;
        *length += received;
        if received == 0 || is_complete(&request[..*length]) {
            break;
        }
    }
    Ok(())
}

fn write_response(stream: &mut TcpStream, response: &[u8], sent: &mut usize) -> io::Result<()> {
    while *sent < response.len() {
        match stream.write(&response[*sent..])? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            length => *sent += length,
        }
    }
    Ok(())
}

/// Discards input until the client closes the connection or [`DISCARDED_BYTES_MAX`] are reached.
/// Closing a socket with unread input makes the kernel send a reset, at which the client may
/// discard the response (RFC 9112, section 9.6). The result is always an error: of kind
/// `WouldBlock` while the client has sent no more, otherwise one that closes the connection.
fn discard_input(stream: &mut TcpStream, discarded: &mut usize) -> io::Result<()> {
    let mut buffer = [0; 4_096];
    while *discarded < DISCARDED_BYTES_MAX {
        match stream.read(&mut buffer)? {
            0 => break,
            length => *discarded += length,
        }
    }
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// Returns the bytes of the response to the bytes of a request: the value of `handler` if the
/// request is valid, without its body for HEAD; otherwise a refusal.
#[must_use]
pub fn respond(request: &[u8], handler: &impl Fn(&HttpRequest<'_>) -> HttpResponse) -> Vec<u8> {
    match HttpRequest::parse(request) {
        Ok(request) => handler(&request).to_bytes(!request.is_head),
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
        stream.set_read_timeout(Some(2 * CONNECTION_LIFETIME)).unwrap();
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
        assert!(started.elapsed() < CONNECTION_LIFETIME, "waited for the slow ones");
    }

    #[test]
    fn who_sends_more_than_is_read_gets_the_reply() {
        let (_responder, address) = responder();
        let long = "x".repeat(50_000);
        let post = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{long}", long.len());
        for (request, code) in [(long, "400"), (post, "405")] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(2 * CONNECTION_LIFETIME)).unwrap();
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
        stream.set_write_timeout(Some(10 * CONNECTION_LIFETIME)).unwrap();
        let piece = [b'x'; 10_000];
        let most = 100 * DISCARDED_BYTES_MAX / piece.len();
        assert!((0..most).any(|_| stream.write_all(&piece).is_err()));
    }

    /// How long it takes until a connection is closed or reset, on which this was sent.
    fn time_to_end(address: SocketAddr, request: &str) -> Duration {
        let started = Instant::now();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(10 * CONNECTION_LIFETIME)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        started.elapsed()
    }

    #[test]
    fn a_connection_ends_in_time() {
        let (_responder, address) = responder();
        for request in ["", "GET / HT"] {
            let took = time_to_end(address, request);
            assert!(took < 3 * CONNECTION_LIFETIME, "{request:?}: {took:?}");
        }
    }
}

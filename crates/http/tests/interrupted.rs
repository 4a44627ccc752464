//! That a signal does not end the wait for an answer. By itself in a program, which it stops.

#![expect(clippy::unwrap_used, reason = "clippy allows it in tests, but not in what they share")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{self, Command};
use std::thread;
use std::time::Duration;

use horolog_http::{GetRequest, get};

/// signal(7): a receiving call with a time limit ends with `EINTR` when its program is stopped and
/// continued, without any handler.
fn stop_and_continue() {
    let own = process::id();
    let script = format!("sleep 0.2; kill -STOP {own}; sleep 0.1; kill -CONT {own}");
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

#[test]
fn a_signal_does_not_end_the_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let request = BufReader::new(&stream).lines().map_while(Result::ok);
        assert!(request.take_while(|line| !line.is_empty()).count() > 1);
        stop_and_continue();
        stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    });
    let within = Duration::from_mins(1);
    let page =
        get(&GetRequest { address, target: "/", bearer: None, timeout: within, body_max: 100 });
    assert_eq!(page.unwrap().body, b"ok");
    server.join().unwrap();
}

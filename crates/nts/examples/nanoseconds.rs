//! Benchmark of the operations on one packet: prints the duration of each in nanoseconds, the
//! minimum of several rounds, which is least affected by other load.
//!
//! `cargo run --release -p horolog-nts --example nanoseconds [part of an operation's name]`

use core::hint::black_box;
use core::time::Duration;
use std::time::Instant;

use aes_siv::KeyInit as _;
use aes_siv::siv::Aes128Siv;
use horolog_nts::{
    AeadAlgorithm, BATCH, BatchKeyBuffer, CookieKeys, CookieMasterSecret, NonceStream,
    RequestTemplate, SessionKeys, UnsealedReply, cookie_len, open_request, open_requests,
    seal_replies, seal_reply,
};
use horolog_time::Timestamp;

const ROUNDS: usize = 400;
const REPEATS: u32 = 500;

fn measure(name: &str, mut work: impl FnMut()) {
    if std::env::args().nth(1).is_some_and(|part| !name.contains(&part)) {
        return;
    }
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..REPEATS {
            work();
        }
        best = best.min(start.elapsed());
    }
    println!("{:8.1} ns  {name}", best.as_nanos() as f64 / f64::from(REPEATS));
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let secret = CookieMasterSecret::generate()?;
    let now = Timestamp::from_timespec(1_700_000_000, 0);
    let keys = CookieKeys::new(&secret, Duration::from_hours(24), 7, now);
    for algorithm in AeadAlgorithm::ALL {
        measure_session(&keys, algorithm)?;
    }
    measure_reference();
    Ok(())
}

fn measure_session(
    keys: &CookieKeys,
    algorithm: AeadAlgorithm,
) -> Result<(), Box<dyn core::error::Error>> {
    println!("{algorithm:?}, one cookie out, one in:");
    let mut nonces = NonceStream::new()?;
    let (mut c2s, mut s2c) = ([0; 32], [0; 32]);
    nonces.fill(&mut c2s);
    nonces.fill(&mut s2c);
    let len = algorithm.key_len();
    let session = SessionKeys::new(algorithm, &c2s[..len], &s2c[..len])?;
    let mut cookie = vec![0; cookie_len(algorithm)];
    keys.seal(&session, [1; 16], &mut cookie);
    let template = RequestTemplate::new(&session, &cookie, 0);
    let mut request = vec![0; template.request_len(0)];
    template.seal(&[0x23; 48], &[1; 32], &[2; 16], 0, &mut request);
    measure("cookie sealed", || {
        black_box(keys.seal(black_box(&session), [1; 16], &mut cookie));
    });
    measure("cookie opened", || {
        black_box(keys.open(black_box(&cookie)));
    });
    measure("request sealed from a template", || {
        black_box(template.seal(black_box(&[0x23; 48]), &[1; 32], &[2; 16], 0, &mut request));
    });
    let opened = open_request(keys, &request).map_err(|refusal| refusal.to_string())?;
    let mut out = vec![0; request.len()];
    measure("open_request", || {
        let _ = black_box(open_request(keys, black_box(&request)));
    });
    measure("seal_reply", || {
        let mut random = |bytes: &mut [u8]| nonces.fill(bytes);
        black_box(seal_reply(keys, black_box(&opened), &[0x24; 48], &mut random, &mut out));
    });
    measure("open_request and seal_reply", || {
        let Ok(opened) = open_request(keys, black_box(&request)) else { return };
        let mut random = |bytes: &mut [u8]| nonces.fill(bytes);
        black_box(seal_reply(keys, &opened, &[0x24; 48], &mut random, &mut out));
    });
    let requests = [Some(&request[..]); BATCH];
    let mut out = vec![0; BATCH * request.len()];
    let mut room = BatchKeyBuffer::default();
    measure("open_requests and seal_replies, 8 at once, all of them", || {
        let mut opened = [const { None }; BATCH];
        open_requests(keys, black_box(&requests), &mut room, |index, result| {
            opened[index] = result.ok();
        });
        let mut buffers = out.chunks_exact_mut(request.len());
        let mut replies = opened.each_ref().map(|opened| {
            let (Some(opened), Some(out)) = (opened, buffers.next()) else { return None };
            Some(UnsealedReply { request: opened, header: [0x24; 48], out, len: 0 })
        });
        seal_replies(keys, &mut replies, &mut room, &mut |bytes| nonces.fill(bytes));
        black_box(&replies);
    });
    Ok(())
}

/// Measures the `aes-siv` crate for comparison: the operations of a request (188 bytes of
/// associated data), of a reply (84 bytes, and 104 encrypted), and of a cookie (64 encrypted).
fn measure_reference() {
    println!("the aes-siv crate:");
    let key = [7; 32];
    let mut text = [0; 104];
    measure("key made ready, request of 188 bytes authenticated", || {
        let mut siv = Aes128Siv::new(black_box(&key).into());
        let _ = black_box(
            siv.encrypt_inout_detached([&[1; 188][..], &[2; 16]], (&mut text[..0]).into()),
        );
    });
    measure("key made ready, reply of 84 bytes with 104 encrypted", || {
        let mut siv = Aes128Siv::new(black_box(&key).into());
        let _ =
            black_box(siv.encrypt_inout_detached([&[1; 84][..], &[2; 16]], (&mut text[..]).into()));
    });
    let mut siv = Aes128Siv::new(&key.into());
    measure("64 bytes of a cookie encrypted under a key that is ready", || {
        let _ = black_box(siv.encrypt_inout_detached([&[1; 20][..]], (&mut text[..64]).into()));
    });
}

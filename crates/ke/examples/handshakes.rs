//! Benchmark of NTS-KE exchanges per second. `handshakes serve CERT KEY ADDRESS THREADS` runs this
//! crate's listener without limits until its standard input ends. `handshakes ask CA HOST ADDRESS
//! THREADS SECONDS` loads an NTS-KE server with consecutive full handshakes on each thread.

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use horolog_ke::{
    AES_SIV_CMAC_256, CookieProvider, NtsKeClient, NtsKeConfig, NtsKeServer, TrustAnchors,
};

const TIMEOUT: Duration = Duration::from_secs(5);

/// Provider of cookies of 100 zero bytes, as long as those of chronyd.
struct ZeroCookies;

impl CookieProvider for ZeroCookies {
    fn algorithms(&self) -> Vec<u16> {
        vec![AES_SIV_CMAC_256]
    }

    fn cookies(&self, _: u16, _: &[u8], _: &[u8], count: usize) -> Vec<Vec<u8>> {
        vec![vec![0; 100]; count]
    }
}

fn serve(certificate: &str, key: &str, address: &str, threads: &str) -> Result<(), Box<dyn Error>> {
    let mut config =
        NtsKeConfig::new(address.parse()?, PathBuf::from(certificate), PathBuf::from(key));
    config.threads = threads.parse()?;
    config.limits.connections_per_prefix = 0;
    config.limits.rate_per_prefix = 0;
    let server = NtsKeServer::start(config, Arc::new(ZeroCookies))?;
    println!("listening on {:?}", server.listen_addresses());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{:?}", server.counts());
    Ok(())
}

fn run_clients(
    authority: &str,
    host: &str,
    address: &str,
    threads: &str,
    seconds: &str,
) -> Result<(), Box<dyn Error>> {
    let trust = TrustAnchors::from_pem_file(Some(Path::new(authority)))?;
    let client = NtsKeClient::new(&trust, &[AES_SIV_CMAC_256])?;
    let (address, threads, seconds) =
        (address.parse()?, threads.parse::<usize>()?, seconds.parse::<f64>()?);
    let (done, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while started.elapsed().as_secs_f64() < seconds {
                    let got = client.exchange_keys(host, address, TIMEOUT);
                    if got.is_ok() { &done } else { &failed }.fetch_add(1, Relaxed);
                    if let Err(error) = got {
                        eprintln!("{error}");
                    }
                }
            });
        }
    });
    let elapsed = started.elapsed().as_secs_f64();
    let rate = done.load(Relaxed) as f64 / elapsed;
    println!("{rate:.0} sessions/s, {} failed", failed.load(Relaxed));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
    match words[..] {
        ["serve", certificate, key, address, threads] => serve(certificate, key, address, threads),
        ["ask", authority, host, address, threads, seconds] => {
            run_clients(authority, host, address, threads, seconds)
        }
        _ => Err("usage: handshakes serve CERT KEY ADDRESS THREADS | ask CA HOST ADDRESS THREADS SECONDS".into()),
    }
}

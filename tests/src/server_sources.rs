//! Scenarios of time sources: daemons that are mirrored, and inputs that the scenario feeds with
//! correct and wrong times. Neither chronyd, which runs with `-x`, nor ntpd, which lacks the
//! privilege, touches the system clock.

use std::fs::Permissions;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, ensure};
use horolog_lab::{Lab, LabConfig, LabHost, RunningProgram};
use horolog_source::SockSample;
use horolog_sys::clock::ClockRealtime;
use horolog_sys::sysv_shared_memory::SysvSharedMemory;
use horolog_time::{Clock, NS_PER_S, Span};
use horolog_wire::ntp::{Header, LeapIndicator};
use tempfile::TempDir;

use crate::client;
use crate::process::{Engine, Server, TIMEOUT, server_address, wait_until};
use crate::scenario::{Need, Scenario, scenario};
use crate::server_nts::Ntpd;

/// Largest difference between fed and served time: a reading over a link on a busy host. It is less
/// than the difference between fed time and the system clock.
pub(crate) const ERROR_MAX: Span = Span::from_ns(10_000_000);
/// Offset of the correct sources: the system clock is behind by this much.
const SOURCE_OFFSET: Span = Span::from_ns(20_000_000);
const WRONG_OFFSET: Span = Span::from_ns(5 * NS_PER_S);
const YEARS_OFFSET: Span = Span::from_ns(3 * 365 * 86_400 * NS_PER_S);
/// Unit of shared memory that no other program uses.
const SHM_UNIT: u8 = 217;
const ROOT: &[Need] = &[Need::Root];
const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd"), Need::Peer("chronyc")];
const NTPD: &[Need] = &[Need::Root, Need::Peer("ntpd"), Need::Peer("setpriv")];

pub(crate) fn all() -> Vec<Scenario> {
    type Run = fn() -> Result<()>;
    let mut all = Vec::new();
    for engine in Engine::ALL {
        let name = format!("server_sources::chronyd_is_mirrored::{}", engine.name());
        all.push(scenario(name, CHRONYD, move || chronyd_is_mirrored(engine)));
        let name = format!("server_sources::ntpd_is_mirrored::{}", engine.name());
        all.push(scenario(name, NTPD, move || ntpd_is_mirrored(engine)));
    }
    let of_root: [(&str, Run); 3] = [
        ("a_falseticker_is_rejected", a_falseticker_is_rejected),
        ("a_jump_by_years_is_not_served", a_jump_by_years_is_not_served),
        ("missing_sources_are_named", missing_sources_are_named),
    ];
    let named = |(name, run)| scenario(format!("server_sources::{name}"), ROOT, run);
    all.extend(of_root.map(named));
    all
}

pub(crate) fn is_unsynchronised(header: &Header) -> bool {
    (header.leap, header.stratum) == (LeapIndicator::Unsynchronised, 0)
}

/// Starts a chronyd with a local stratum of 7 that serves NTP at port 1123 and accepts commands at
/// a socket and at the default port.
fn start_chronyd(host: &LabHost, directory: &Path) -> Result<RunningProgram> {
    let path = |name: &str| directory.join(name).display().to_string();
    let (socket, pid) = (path("chronyd.sock"), path("chronyd.pid"));
    let mut command = host.command("chronyd");
    command.args(["-x", "-d", "-u", "root", "-f", "/dev/null", "allow all", "local stratum 7"]);
    command.args(["port 1123", "cmdport 323", "bindcmdaddress 127.0.0.1"]);
    command.args([format!("bindcmdaddress {socket}"), format!("pidfile {pid}")]);
    let mut process = RunningProgram::start(&mut command)?;
    process.await_ready(TIMEOUT, || Path::new(&socket).exists())?;
    Ok(process)
}

/// Over its socket and over UDP, the server serves what chronyd serves to its own clients; options
/// take precedence; without chronyd the server is not synchronised.
fn chronyd_is_mirrored(engine: Engine) -> Result<()> {
    let private = Permissions::from_mode(0o700);
    let directory = tempfile::Builder::new().permissions(private).tempdir()?;
    let lab = Lab::new(&LabConfig::default())?;
    let daemon = start_chronyd(lab.server(), directory.path())?;
    let at = server_address(&lab, false)?;
    let of_chronyd = client::query_from(lab.client(), SocketAddr::new(at.ip(), 1123))?.header;
    ensure!((of_chronyd.leap, of_chronyd.stratum) == (LeapIndicator::None, 7), "{of_chronyd:?}");

    let system_options =
        ["--source", "system", "--stratum", "3", "--refid", "TEST", "--root-delay", "5ms"];
    let server = Server::start_without_local(lab.server(), engine, &[at], &system_options)?;
    let reply = client::query_from(lab.client(), at)?.header;
    ensure!((reply.leap, reply.stratum) == (LeapIndicator::None, 3), "{reply:?}");
    ensure!(&reply.reference_id == b"TEST" && reply.root_delay.to_bits() > 0, "{reply:?}");
    server.end("TERM")?;

    let source = format!("system,chronyd={}", directory.path().join("chronyd.sock").display());
    for source in ["system", source.as_str()] {
        let server =
            Server::start_without_local(lab.server(), engine, &[at], &["--source", source])?;
        let reply = client::query_from(lab.client(), at)?;
        let of =
            |header: &Header| (header.leap, header.stratum, header.reference_id, header.root_delay);
        ensure!(of(&reply.header) == of(&of_chronyd), "{:?} of {source}", reply.header);
        let more = reply.header.root_dispersion.to_span() - of_chronyd.root_dispersion.to_span();
        ensure!((Span::ZERO..Span::from_ms(10)).contains(&more), "{:?}", reply.header);
        ensure!(reply.has_offset(Span::ZERO, ERROR_MAX), "{reply:?}");
        let status = server.status()?;
        ensure!(status["sources"][0]["state"] == "selected", "{status}");
        ensure!(status["sources"][0]["stratum"] == 7, "{status}");
    }
    let server = Server::start_without_local(lab.server(), engine, &[at], &["--source", &source])?;
    drop(daemon);
    wait_until("without chronyd the server is not synchronised", || {
        Ok(is_unsynchronised(&client::query_from(lab.client(), at)?.header))
    })?;
    let ended = server.end("TERM")?;
    ensure!(ended.stderr.contains("does not respond: chronyd at"), "{}", ended.stderr);
    Ok(())
}

/// ntpd, which is synchronised to a server on the other host, is queried by mode 6, and the server
/// serves what ntpd reports of its source; without ntpd the server is not synchronised.
fn ntpd_is_mirrored(engine: Engine) -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let upstream = server_address(&lab, false)?;
    let _upstream = Server::start(lab.server(), Engine::Socket, &[upstream], &["--stratum", "3"])?;
    // ntpd replies to mode 6 only with the second line.
    let lines = format!("server {} iburst minpoll 3 maxpoll 3", upstream.ip());
    let daemon = Ntpd::start(lab.client(), &format!("{lines}\nrestrict 127.0.0.1"))?;
    let at = SocketAddr::from((lab.client().first_interface().ipv4, 1123));
    let source = ["--source", "system,ntpd=127.0.0.1:123"];
    let server = Server::start_without_local(lab.client(), engine, &[at], &source)?;
    wait_until("the server follows ntpd", || {
        Ok(!is_unsynchronised(&client::query_from(lab.server(), at)?.header))
    })?;
    let reply = client::query_from(lab.server(), at)?;
    let header = reply.header;
    ensure!((header.leap, header.stratum) == (LeapIndicator::None, 4), "{header:?}");
    ensure!(IpAddr::from(header.reference_id) == upstream.ip(), "{header:?}");
    ensure!((Span::ZERO..ERROR_MAX).contains(&header.root_delay.to_span()), "{header:?}");
    ensure!(header.root_dispersion.to_bits() > 0, "{header:?}");
    ensure!(reply.has_offset(Span::ZERO, ERROR_MAX), "{reply:?}");
    let status = server.status()?;
    ensure!(status["sources"][0]["state"] == "selected", "{status}");
    drop(daemon);
    wait_until("without ntpd the server is not synchronised", || {
        Ok(is_unsynchronised(&client::query_from(lab.server(), at)?.header))
    })?;
    let ended = server.end("TERM")?;
    ensure!(ended.stderr.contains("ntpd at 127.0.0.1:123"), "{}", ended.stderr);
    Ok(())
}

/// Feeds a source every 0.5 s with true time minus the system clock, until it is dropped; with the
/// largest offset it pauses.
struct Feeder {
    offset: Arc<AtomicI64>,
    thread: Option<JoinHandle<()>>,
    done: Arc<AtomicU32>,
}

impl Feeder {
    const PAUSED: Span = Span::from_ns(i64::MAX);

    fn start(offset: Span, mut feed: impl FnMut(Span) + Send + 'static) -> Self {
        let (offset, done) = (Arc::new(AtomicI64::new(offset.as_ns())), Arc::default());
        let (current, stop) = (Arc::clone(&offset), Arc::clone(&done));
        let work = move || {
            while AtomicU32::load(&stop, Ordering::Relaxed) == 0 {
                match Span::from_ns(current.load(Ordering::Relaxed)) {
                    Self::PAUSED => {}
                    offset => feed(offset),
                }
                thread::sleep(Duration::from_millis(500));
            }
        };
        Self { offset, thread: Some(thread::spawn(work)), done }
    }

    fn feed(&self, offset: Span) {
        self.offset.store(offset.as_ns(), Ordering::Relaxed);
    }

    /// Feeds samples through a socket that the server creates.
    fn sock(path: PathBuf, offset: Span) -> Result<Self> {
        let socket = UnixDatagram::unbound()?;
        Ok(Self::start(offset, move |offset| {
            let sample = SockSample {
                system: ClockRealtime.now(),
                offset,
                pulse: false,
                leap: LeapIndicator::None,
            };
            // The server may not have started yet, or may have ended.
            let _ = socket.send_to(&sample.emit(), &path);
        }))
    }

    /// Feeds samples in shared memory, which is removed with the feeder.
    fn shm(offset: Span) -> Result<Self> {
        let memory =
            ShmSegment(SysvSharedMemory::attach(0x4e54_5030 + i32::from(SHM_UNIT), 0o666)?);
        Ok(Self::start(offset, move |offset| memory.write(offset)))
    }

    /// Feeds reports of gpsd to every client.
    fn gpsd(listener: TcpListener, offset: Span) -> Result<Self> {
        listener.set_nonblocking(true)?;
        let mut streams: Vec<TcpStream> = Vec::new();
        Ok(Self::start(offset, move |offset| {
            streams.extend(listener.accept().map(|(stream, _)| stream));
            let system = ClockRealtime.now();
            let ((clock, clock_ns), (real, real_ns)) =
                (system.to_timespec(), (system + offset).to_timespec());
            let line = format!(
                "{{\"class\":\"PPS\",\"device\":\"/dev/pps0\",\"real_sec\":{real},\
                 \"real_nsec\":{real_ns},\"clock_sec\":{clock},\"clock_nsec\":{clock_ns},\
                 \"precision\":-20}}\r\n"
            );
            streams.retain_mut(|stream| stream.write_all(line.as_bytes()).is_ok());
        }))
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.done.store(1, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed to stderr.
            let _ = thread.join();
        }
    }
}

/// Segment of shared memory that is removed when it is dropped.
struct ShmSegment(SysvSharedMemory<24>);

impl ShmSegment {
    /// Writes a sample in mode 1: the count is incremented before and after.
    fn write(&self, offset: Span) {
        let Self(memory) = self;
        let system = ClockRealtime.now();
        let count = memory.load(1);
        memory.store(0, 1);
        memory.store(12, 0);
        memory.store(1, count.wrapping_add(1));
        for (at, time) in [(2, system + offset), (6, system)] {
            let (seconds, nanoseconds) = time.to_timespec();
            memory.store(at, seconds as u32);
            memory.store(at + 1, (seconds >> 32) as u32);
            memory.store(at + 2, nanoseconds / 1_000);
            memory.store(if at == 2 { 13 } else { 14 }, nanoseconds);
        }
        memory.store(9, 0);
        memory.store(10, (-20i32).cast_unsigned());
        memory.store(1, count.wrapping_add(2));
        memory.store(12, 1);
    }
}

impl Drop for ShmSegment {
    fn drop(&mut self) {
        // A segment that cannot be removed remains in the output of `ipcs`.
        let _ = self.0.remove();
    }
}

/// Unit of shared memory that a server creates if it does not exist; removed when this is dropped.
pub(crate) struct ShmUnit(pub(crate) u8);

impl Drop for ShmUnit {
    fn drop(&mut self) {
        // A segment that cannot be removed remains in the output of `ipcs`.
        let attached = SysvSharedMemory::<24>::attach(0x4e54_5030 + i32::from(self.0), 0o666);
        let _ = attached.and_then(|memory| memory.remove());
    }
}

/// Returns the state of the source whose name starts with `name`.
pub(crate) fn source_state(server: &Server, name: &str) -> Result<String> {
    let status = server.status()?;
    let sources = status["sources"].as_array().cloned().unwrap_or_default();
    let found =
        sources.iter().find(|one| one["name"].as_str().is_some_and(|n| n.starts_with(name)));
    Ok(found.and_then(|one| one["state"].as_str()).unwrap_or_default().to_owned())
}

/// A wrong source among three is rejected as a falseticker; when a correct one pauses, the other
/// two disagree, and the server is not synchronised.
fn a_falseticker_is_rejected() -> Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("gps.sock");
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let listener = lab.server().run(|| TcpListener::bind("127.0.0.1:2947"))??;
    let _sock = Feeder::sock(path.clone(), SOURCE_OFFSET)?;
    let shm = Feeder::shm(SOURCE_OFFSET)?;
    let gpsd = Feeder::gpsd(listener, SOURCE_OFFSET)?;
    let (of_sock, of_shm) = (format!("sock:{}", path.display()), format!("shm:{SHM_UNIT}"));
    let arguments = ["--source", &of_sock, "--source", &of_shm, "--source", "gpsd,refid=PPS"];
    let server = Server::start_without_local(lab.server(), Engine::Socket, &[at], &arguments)?;
    let is_served = || -> Result<bool> {
        let reply = client::query_from(lab.client(), at)?;
        let in_time = reply.has_offset(SOURCE_OFFSET, ERROR_MAX);
        Ok((reply.header.leap, reply.header.stratum) == (LeapIndicator::None, 1) && in_time)
    };
    wait_until("all three sources agree", || {
        let right = |state: String| state == "selected" || state == "truechimer";
        let all = ["sock", "shm", "gpsd"].map(|name| source_state(&server, name).map(right));
        Ok(all.into_iter().collect::<Result<Vec<_>>>()?.iter().all(|right| *right) && is_served()?)
    })?;
    shm.feed(WRONG_OFFSET);
    wait_until("the falseticker is found", || Ok(source_state(&server, "shm")? == "falseticker"))?;
    ensure!(is_served()?, "a falseticker changed the served time");
    gpsd.feed(Feeder::PAUSED);
    wait_until("the two sources disagree", || {
        Ok(is_unsynchronised(&client::query_from(lab.client(), at)?.header)
            && source_state(&server, "sock")? == "undecided")
    })?;
    let ended = server.end("TERM")?;
    let occurrences = |text: &str| ended.stderr.matches(text).count();
    ensure!(occurrences("is a falseticker") == 1, "{}", ended.stderr);
    ensure!(occurrences("the time sources disagree") == 1, "{}", ended.stderr);
    Ok(())
}

/// A source jumps by years: no synchronised reply contains its time before the operator confirms it
/// by a reload.
fn a_jump_by_years_is_not_served() -> Result<()> {
    let directory = TempDir::new()?;
    let path = directory.path().join("gps.sock");
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let sock = Feeder::sock(path.clone(), SOURCE_OFFSET)?;
    let source = format!("sock:{}", path.display());
    let server =
        Server::start_without_local(lab.server(), Engine::Socket, &[at], &["--source", &source])?;
    wait_until("the source is selected", || Ok(source_state(&server, "sock")? == "selected"))?;
    // The first synchronised reply follows soon after the selection.
    wait_until("the time of the source is served", || {
        let reply = client::query_from(lab.client(), at)?;
        let is_right = reply.has_offset(SOURCE_OFFSET, ERROR_MAX);
        ensure!(is_unsynchronised(&reply.header) || is_right, "{reply:?}");
        Ok(!is_unsynchronised(&reply.header))
    })?;
    sock.feed(YEARS_OFFSET);
    wait_until("the server is not synchronised", || {
        let reply = client::query_from(lab.client(), at)?;
        let is_wrong = reply.offset() > WRONG_OFFSET;
        ensure!(!is_wrong || is_unsynchronised(&reply.header), "a wrong time: {reply:?}");
        Ok(source_state(&server, "sock")? == "unusable" && is_unsynchronised(&reply.header))
    })?;
    server.signal("HUP")?;
    wait_until("the confirmed time is served", || {
        let reply = client::query_from(lab.client(), at)?;
        Ok(reply.offset() > WRONG_OFFSET && !is_unsynchronised(&reply.header))
    })?;
    let ended = server.end("TERM")?;
    let message = "and neither is confirmed; if it is right, confirm it with: kill -HUP";
    ensure!(ended.stderr.matches(message).count() == 1, "{}", ended.stderr);
    Ok(())
}

/// A source that cannot be opened or is unknown, and invalid combinations, are named.
fn missing_sources_are_named() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    for (arguments, expected) in [
        (["--source", "phc:/dev/ptp77"].as_slice(), "/dev/ptp77: no such clock"),
        (&["--source", "sock:/there-is-none/sock"], "cannot create the socket /there-is-none/sock"),
        (&["--source", "sundial"], "--source sundial: unknown source 'sundial'"),
        (&["--source", "system", "--source", "system"], "system is specified twice"),
        (&["--source", "system", "--local"], "cannot be used with"),
    ] {
        let Err(error) =
            Server::start_without_local(lab.server(), Engine::Socket, &[at], arguments)
        else {
            anyhow::bail!("{arguments:?} are accepted");
        };
        ensure!(error.to_string().contains(expected), "{arguments:?}: {error}");
    }
    Ok(())
}

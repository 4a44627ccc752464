//! `horolog bench nts`: cost of authentication by NTS on a multi-core server.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use horolog_experiment::bench_nts::{self, MasterSecretFile, NtsBenchOptions};
use horolog_load::nts::{AeadAlgorithm, CookieMasterSecret};
use horolog_sys::private_file;
use zeroize::Zeroizing;

use super::parse_thread_count;
use crate::commands::experiment_progress::ExperimentProgress;
use crate::failure::CommandFailure;
use crate::files::ResultFiles;
use crate::output;
use crate::result_store::StoreResultArgs;

/// Largest accepted size of a master secret file, in bytes.
const SECRET_LEN_MAX: u64 = 1 << 20;

/// Measure the cost of authentication on a multi-core server.
///
/// Creates two lab hosts (requires root), starts a server in one of them with one thread, then with
/// more, and searches from the other for the highest rate at which at most 0.01% of the requests
/// are lost, while 0%, 10%, 50% and 100% of them (--shares) are authenticated by NTS. One generator
/// sends all requests; it encrypts requests and decrypts replies in user space, on this host's
/// cores too. If the server has a thread for each core, server and generator share cores. A rate
/// that the generator limits is marked with ≥. Each rate is shown with the CPU time of the server's
/// threads per reply, which the generator hardly affects.
#[derive(Args, Debug)]
pub(crate) struct BenchNtsArgs {
    /// Numbers of threads of the server, such as 1,2,4 [default: one, doubled up to one for each
    /// core].
    #[arg(long, value_name = "N[,N...]", value_delimiter = ',', value_parser = parse_thread_count)]
    threads: Vec<usize>,
    /// Percentages of requests that are authenticated; the results of the others are compared with
    /// that of the first percentage.
    #[arg(long, value_name = "PERCENT[,PERCENT...]", value_delimiter = ',',
          default_value = "0,10,50,100", value_parser = clap::value_parser!(u8).range(0..=100))]
    shares: Vec<u8>,
    /// Approximate total duration of the trials of each search.
    #[arg(long, value_name = "TIME", value_parser = crate::values::positive_duration, default_value = "5s")]
    time: Duration,
    /// Engine of the server. xdp: XDP, with redirection of authenticated requests to threads;
    /// socket: only sockets; auto: the best available one.
    #[arg(long, value_enum, default_value_t = BenchNtsEngineArg::Auto)]
    engine: BenchNtsEngineArg,
    /// Threads of the generator [default: one for every second core].
    #[arg(long, value_name = "N", value_parser = parse_thread_count)]
    load_threads: Option<usize>,
    /// AEAD algorithm of the sessions.
    #[arg(long, value_enum, value_name = "NAME", default_value_t = BenchAeadAlgorithmArg::AesSivCmac256)]
    algorithm: BenchAeadAlgorithmArg,
    /// File of the master secret of the server, as for 'horolog serve' [default: one created for
    /// the experiment].
    #[arg(long, value_name = "FILE")]
    nts_master_secret: Option<PathBuf>,
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report with plots to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    store_args: StoreResultArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BenchNtsEngineArg {
    Auto,
    Socket,
    Xdp,
}

impl BenchNtsEngineArg {
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Socket => "socket",
            Self::Xdp => "xdp",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum BenchAeadAlgorithmArg {
    #[value(name = "aes-siv-cmac-256")]
    AesSivCmac256,
    #[value(name = "aes-128-gcm-siv")]
    Aes128GcmSiv,
}

impl BenchAeadAlgorithmArg {
    const fn algorithm(self) -> AeadAlgorithm {
        match self {
            Self::AesSivCmac256 => AeadAlgorithm::AesSivCmac256,
            Self::Aes128GcmSiv => AeadAlgorithm::Aes128GcmSiv,
        }
    }
}

impl BenchNtsArgs {
    fn options(&self) -> Result<NtsBenchOptions, CommandFailure> {
        Ok(NtsBenchOptions {
            threads: self.threads.clone(),
            shares: self.shares.clone(),
            search_duration: self.time,
            engine: self.engine.name(),
            load_threads: self.load_threads,
            algorithm: self.algorithm.algorithm(),
            master_secret: self.nts_master_secret.as_deref().map(read_master_secret).transpose()?,
            command: output::command_line(),
        })
    }
}

pub(crate) fn run(args: &BenchNtsArgs) -> Result<(), CommandFailure> {
    let files = ResultFiles::open([("--json", &args.json), ("--html", &args.html)])?
        .with_store(&args.store_args);
    output::install_interrupt_handler()?;
    files.write(&bench_nts::run(args.options()?, &ExperimentProgress::default())?)
}

fn read_master_secret(path: &Path) -> Result<MasterSecretFile, CommandFailure> {
    let failed = |error| {
        CommandFailure::environment(format!("--nts-master-secret {} {error}", path.display()))
    };
    let text = private_file::read(path, SECRET_LEN_MAX).map(Zeroizing::new).map_err(failed)?;
    CookieMasterSecret::parse(&text)
        .map(|secret| MasterSecretFile::new(secret, path.to_owned()))
        .map_err(|error| CommandFailure::environment(format!("{}: {error}", path.display())))
}

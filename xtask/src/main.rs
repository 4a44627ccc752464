//! Project chores that need more than a line of shell: `cargo xtask tidy` checks rules beyond those
//! of the compiler and clippy, `cargo xtask fuzz` builds and runs the fuzz targets, `cargo xtask
//! sbom` and `cargo xtask notices` list third-party parts of the binary.
//!
//! It depends on no crate of the product, so that a product that does not compile can be checked,
//! and it changes no file of the project.

mod cargo;
mod fuzz;
mod shipped;
#[cfg(test)]
mod static_build;
mod tidy;

use std::process::ExitCode;

use tidy::Listing;

const USAGE: &str = "\
usage: cargo xtask tidy [--long | --language]
       cargo xtask fuzz [--seconds N] [--changed] [TARGET]
       cargo xtask sbom [--timestamp INSTANT] [--target TARGET] [--with FILE]
       cargo xtask notices [--target TARGET] [--with FILE]

tidy   check dependencies, unsafe code, style, language, private paths and licences
       --long      also list the files that exceed the recommended length
       --language  also list every use that a budget counts, every shared type name, and the
                   files that are not named after their only type
fuzz   run every fuzz target, or just TARGET
       --seconds N for each target [default: 10]
       --changed   only run the corpus of targets whose sources are those of their last clean run
sbom   print the parts of the binary, as CycloneDX
       --timestamp INSTANT, such as 2026-01-31T12:00:00Z
       --target TARGET of the binary [default: this host's]
       --with FILE with further linked parts; scripts/static.sh writes it
notices print the licences of the parts of the binary";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["tidy"] => tidy::run(Listing::Findings),
        ["tidy", "--long"] => tidy::run(Listing::LongFiles),
        ["tidy", "--language"] => tidy::run(Listing::Language),
        ["fuzz", options @ ..] => match fuzz::FuzzOptions::parse(options) {
            Some(options) => fuzz::run(&options),
            None => return usage(),
        },
        [what @ ("sbom" | "notices"), options @ ..] => {
            match shipped::PartsOptions::parse(options) {
                Some(options) if *what == "sbom" => shipped::print_sbom(&options),
                Some(options) if options.timestamp.is_none() => shipped::print_notices(&options),
                _ => return usage(),
            }
        }
        _ => return usage(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

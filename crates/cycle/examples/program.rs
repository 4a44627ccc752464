//! A program that is the work of a periodic task: it sums a block of numbers in each period, and
//! tells what it does.
//!
//!     horolog cycle run --period 10ms --program -- target/release/examples/program

use std::hint::black_box;
use std::process::ExitCode;

use horolog_cycle::mark::PeriodPhase;
use horolog_cycle::program::{CurrentProgramPeriod, PeriodicProgram, serve};

struct Sum {
    numbers: Vec<u64>,
}

impl PeriodicProgram for Sum {
    fn period(&mut self, period: &CurrentProgramPeriod<'_>) -> bool {
        for number in &mut self.numbers {
            *number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(period.cycle());
        }
        // What goes to other machines would be sent and awaited here.
        let marked = period.phase(PeriodPhase::Communication);
        let sum = self.numbers.iter().fold(0_u64, |sum, number| sum.wrapping_add(*number));
        black_box(sum);
        marked.is_ok()
    }
}

fn main() -> ExitCode {
    match serve(&mut Sum { numbers: vec![1; 100_000] }) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("program: {error}");
            ExitCode::FAILURE
        }
    }
}

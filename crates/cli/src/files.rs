//! Outputs of a measurement's result: the files of `--json` and `--html`, the result store, and
//! text on standard output unless a file flag is `-`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use horolog_report::table::TableStyle;
use horolog_report::{MeasuredResult, RenderableResult, to_json};
use serde::Serialize;

use crate::ci::{self, CiOutputArgs};
use crate::failure::{CommandFailure, check_findings, check_limits};
use crate::limit::MetricLimit;
use crate::output::{self, ResultDestination};
use crate::result_store::StoreResultArgs;

/// Output files of a result.
#[derive(Args, Debug)]
pub(crate) struct ResultFileArgs {
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report with plots to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    ci: CiOutputArgs,
    #[command(flatten)]
    store_args: StoreResultArgs,
}

impl ResultFileArgs {
    pub(crate) fn open(&self) -> Result<ResultFiles<2>, CommandFailure> {
        self.ci.open(&[("--json", self.json.as_deref()), ("--html", self.html.as_deref())])?;
        let files = ResultFiles::open([("--json", &self.json), ("--html", &self.html)])?;
        Ok(files.with_store(&self.store_args))
    }

    /// Opens the files. Fails if one of them is also named by another flag of the command, `flag`
    /// with the file `path`.
    pub(crate) fn open_distinct_from(
        &self,
        flag: &str,
        path: Option<&Path>,
    ) -> Result<ResultFiles<2>, CommandFailure> {
        let own = [("--json", self.json.as_deref()), ("--html", self.html.as_deref())];
        require_distinct_files(&[(flag, path), own[0], own[1]])?;
        self.open()
    }
}

/// Fails if two of these flags name the same regular file, because one output would overwrite the
/// other.
pub(crate) fn require_distinct_files(
    flags: &[(&str, Option<&Path>)],
) -> Result<(), CommandFailure> {
    let named = flags.iter().filter_map(|(name, path)| Some((*name, canonical_path((*path)?)?)));
    let named: Vec<_> = named.collect();
    for (index, (later, path)) in named.iter().enumerate() {
        if let Some((name, _)) = named[..index].iter().find(|(_, other)| other == path) {
            return Err(CommandFailure::usage(format!(
                "{name} and {later} name the same file, {}; give each its own",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Returns the canonical path of a regular file, existing or not; `None` for standard output and
/// for devices and pipes, to which several outputs can be written.
fn canonical_path(path: &Path) -> Option<PathBuf> {
    if output::is_stdout(path) || fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return None;
    }
    let canonical = fs::canonicalize(path).ok().or_else(|| {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = fs::canonicalize(directory.unwrap_or_else(|| Path::new("."))).ok()?;
        Some(directory.join(path.file_name()?))
    });
    Some(canonical.unwrap_or_else(|| path.to_owned()))
}

/// Output files of a result, one per format (JSON, HTML…). They are opened before the measurement,
/// so that an error is found before work is lost.
pub(crate) struct ResultFiles<const N: usize> {
    destinations: [Option<ResultDestination>; N],
    takes_stdout: bool,
    store_args: Option<StoreResultArgs>,
}

impl<const N: usize> ResultFiles<N> {
    /// Opens the files of these flags; at most one may be standard output.
    pub(crate) fn open(flags: [(&str, &Option<PathBuf>); N]) -> Result<Self, CommandFailure> {
        let named = flags.iter().filter_map(|(_, path)| path.as_deref());
        let to_stdout = named.filter(|path| output::is_stdout(path)).count();
        if to_stdout > 1 {
            let names = flags.map(|(name, _)| name);
            let (last, others) = names.split_last().unwrap_or((&"", &[]));
            return Err(CommandFailure::usage(format!(
                "only one of {} and {last} can go to standard output",
                others.join(", ")
            )));
        }
        require_distinct_files(&flags.map(|(name, path)| (name, path.as_deref())))?;
        let mut forms = [const { None }; N];
        for (file, (_, path)) in forms.iter_mut().zip(flags) {
            *file = path.as_deref().map(ResultDestination::open).transpose()?;
        }
        Ok(Self { destinations: forms, takes_stdout: to_stdout > 0, store_args: None })
    }

    /// Also stores the result.
    pub(crate) fn with_store(self, store_args: &StoreResultArgs) -> Self {
        Self { store_args: Some(store_args.clone()), ..self }
    }

    /// Writes a result to its files, stores it, and prints its text unless a file is standard
    /// output. `renderers` belong to the flags of [`Self::open`], in the same order. All files are
    /// written before an error is returned.
    pub(crate) fn write_with<R: Serialize>(
        self,
        result: &R,
        renderers: [fn(&R) -> String; N],
        text: fn(&R, &TableStyle) -> String,
    ) -> Result<(), CommandFailure> {
        ci::record_result(result);
        let written = self
            .destinations
            .into_iter()
            .zip(renderers)
            .filter_map(|(file, render)| Some(file?.write(&render(result))));
        let written: Vec<_> = written.collect();
        if let Some(store_args) = &self.store_args {
            store_args.store_result(result, written.iter().any(Result::is_err));
        }
        // Last, because an error of standard output returns at once.
        if !self.takes_stdout {
            output::print_line(&text(result, &output::table_style()))?;
        }
        written.into_iter().collect()
    }
}

impl ResultFiles<2> {
    /// Writes a result to its JSON and HTML files, stores and prints it, as
    /// [`ResultFiles::write_with`].
    pub(crate) fn write<R: Serialize + RenderableResult>(
        self,
        result: &R,
    ) -> Result<(), CommandFailure> {
        self.write_with(result, [to_json, RenderableResult::page], RenderableResult::text)
    }

    /// Evaluates the limits, and writes, stores and prints the result. Fails with status 1 if a
    /// limit failed or a finding has severity error.
    pub(crate) fn finish<R: MeasuredResult + 'static>(
        self,
        result: &mut R,
        limits: &[MetricLimit<R>],
    ) -> Result<(), CommandFailure> {
        self.finish_with(result, limits, [to_json, RenderableResult::page])
    }
}

impl<const N: usize> ResultFiles<N> {
    /// Does what [`ResultFiles::finish`] does, with the renderers of the files.
    pub(crate) fn finish_with<R: MeasuredResult + 'static>(
        self,
        result: &mut R,
        limits: &[MetricLimit<R>],
        renderers: [fn(&R) -> String; N],
    ) -> Result<(), CommandFailure> {
        let evaluated = limits.iter().map(|limit| limit.evaluate(result)).collect();
        *result.judgement().0 = evaluated;
        self.write_with(result, renderers, RenderableResult::text)?;
        let (limits, findings) = result.judgement();
        check_limits(limits)?;
        check_findings(findings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_results_have_two_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("there"), "").unwrap();
        std::os::unix::fs::symlink(path("there"), path("link")).unwrap();
        let judged = |json: &Path, html: &Path| {
            require_distinct_files(&[
                ("--json", Some(json)),
                ("--html", Some(html)),
                ("--csv", None),
            ])
            .map_err(|why| why.to_string())
        };
        for (json, html) in [("x", "x"), ("x", "./x"), ("there", "link")] {
            let why = judged(&path(json), &path(html)).unwrap_err();
            assert!(why.starts_with("--json and --html name the same file"), "{why}");
        }
        assert_eq!(judged(&path("x"), &path("there")), Ok(()));
        assert_eq!(judged(Path::new("/dev/null"), Path::new("/dev/null")), Ok(()));
        assert_eq!(judged(Path::new("-"), Path::new("-")), Ok(()), "told in words of its own");
    }
}

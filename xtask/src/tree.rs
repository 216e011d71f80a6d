//! The project's files: found by walking, read once, named by their path from the root with `/`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::source::SourceFile;

/// All files which the checks read; Rust files are also parsed, as `sources`.
pub(crate) struct SourceTree {
    pub(crate) files: Vec<TreeFile>,
    pub(crate) sources: Vec<SourceFile>,
}

/// A file of any kind; `text` is `None` if the file is not UTF-8 or larger than [`TEXT_BYTES_MAX`].
pub(crate) struct TreeFile {
    pub(crate) path: String,
    pub(crate) bytes: u64,
    pub(crate) text: Option<String>,
}

impl SourceTree {
    pub(crate) fn read(root: &Path) -> io::Result<SourceTree> {
        let mut paths = Vec::new();
        walk(root, &mut paths)?;
        paths.sort();
        let files = paths.iter().map(|path| read(root, path)).collect::<io::Result<_>>()?;
        Ok(SourceTree::new(files))
    }

    pub(crate) fn new(files: Vec<TreeFile>) -> SourceTree {
        let mut sources: Vec<SourceFile> = files
            .iter()
            .filter(|file| file.path.ends_with(".rs"))
            .filter_map(|file| Some(SourceFile::new(&file.path, file.text.as_deref()?)))
            .collect();
        mark_test_files(&mut sources);
        SourceTree { files, sources }
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path)?.text.as_deref()
    }
}

/// Returns the folder of the workspace: the parent of xtask, independent of the current folder.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let from_cargo = manifest.and_then(|path| path.parent().map(Path::to_path_buf));
    from_cargo.unwrap_or_else(|| PathBuf::from("."))
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !SKIPPED.iter().any(|skipped| name == *skipped) {
                walk(&entry.path(), paths)?;
            }
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}

fn read(root: &Path, path: &Path) -> io::Result<TreeFile> {
    let bytes = fs::metadata(path)?.len();
    let text = if bytes > TEXT_BYTES_MAX { None } else { String::from_utf8(fs::read(path)?).ok() };
    let path = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
    Ok(TreeFile { path, bytes, text })
}

/// Marks files declared by `#[cfg(test)] mod name;` as test code from their first line.
fn mark_test_files(sources: &mut [SourceFile]) {
    let mut stems = Vec::new();
    for source in sources.iter() {
        let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
        let home = match file {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_string(),
            file => format!("{folder}/{}", file.trim_end_matches(".rs")),
        };
        stems.extend(source.test_modules().into_iter().map(|name| format!("{home}/{name}")));
    }
    for source in sources {
        let is = |stem: &String| {
            let rest = source.path.strip_prefix(stem.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        if stems.iter().any(is) {
            source.test.fill(true);
        }
    }
}

/// Folders with built or downloaded files, which are not checked.
const SKIPPED: [&str; 6] = [".git", "target", "node_modules", "artifacts", "__pycache__", ".venv"];
const TEXT_BYTES_MAX: u64 = 4 << 20;

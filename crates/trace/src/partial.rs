//! Files that get their names only when they are complete.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Most bytes of a file's name that the partial name keeps: names are limited to 255.
const MOST_NAME: usize = 200;

/// An unfinished file: a new `NAME.XXXXXX.partial` beside the final place, and never a link. If two are written for one
/// place at the same time, the one published last remains, complete.
#[derive(Debug)]
pub struct PartialFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl PartialFile {
    /// Begins the file `path`. A link at `path` stays, and the file is created at its target, even if that does not
    /// exist yet.
    ///
    /// # Errors
    /// The file cannot be created. Or `path` is a device, a pipe or a folder, which the finished file would replace, or
    /// a link without a valid end.
    pub fn create(path: &Path) -> std::io::Result<PartialFile> {
        if path.exists() && !path.is_file() {
            let what = "it is no regular file; give the name of a file to write";
            return Err(std::io::Error::other(what));
        }
        let path = end_of_links(path)?;
        let name = path.file_name().unwrap_or_default().as_bytes();
        let mut prefix = OsStr::from_bytes(&name[..name.len().min(MOST_NAME)]).to_owned();
        prefix.push(".");
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let file = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".partial")
            .make_in(folder, |name| {
                let mut options = File::options();
                // The mode that the user's umask leaves. Never opens an existing file or a link.
                options.write(true).create_new(true).mode(0o666).open(name)
            })?;
        Ok(PartialFile { file, path })
    }

    /// Path until it is published.
    pub fn partial(&self) -> &Path {
        self.file.path()
    }

    /// Keeps the file even if it is not published: it is valid up to its end, and marks itself as a part.
    pub fn keep(&mut self) {
        self.file.disable_cleanup(true);
    }

    /// The file.
    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Gives the file its final name, and replaces an older one. Returns its size.
    ///
    /// # Errors
    /// The file cannot be written, for example to a full disk, or not be renamed.
    pub fn publish(self) -> std::io::Result<u64> {
        self.file().sync_all()?;
        let bytes = self.file().metadata()?.len();
        self.file.persist(&self.path).map_err(|e| e.error)?;
        Ok(bytes)
    }
}

/// Most links in a chain, as in the kernel.
const LINKS: usize = 40;

/// The place of the file `path`: there, or at the end of a chain of links.
fn end_of_links(path: &Path) -> std::io::Result<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..=LINKS {
        if let Ok(whole) = at.canonicalize() {
            return Ok(whole);
        }
        // There is nothing yet, or a link to nothing.
        let Ok(to) = at.read_link() else {
            return Ok(at);
        };
        at = at.parent().unwrap_or(Path::new("")).join(to);
    }
    // A cycle of links.
    path.canonicalize()
}

impl Write for PartialFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.as_file_mut().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::PartialFile;

    #[test]
    fn two_to_one_name_do_not_meet_and_the_last_one_whole_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let elsewhere = dir.path().join("elsewhere");
        std::fs::write(&elsewhere, "kept").unwrap();
        symlink(&elsewhere, dir.path().join("out.partial")).unwrap();
        let mut first = PartialFile::create(&path).unwrap();
        let mut second = PartialFile::create(&path).unwrap();
        first.write_all(b"first").unwrap();
        second.write_all(b"2nd").unwrap();
        assert!(!path.exists());
        assert_eq!(second.publish().unwrap(), 3);
        assert_eq!(std::fs::read(&path).unwrap(), b"2nd");
        assert_eq!(first.publish().unwrap(), 5);
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(std::fs::read(&elsewhere).unwrap(), b"kept");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn an_unpublished_file_is_removed_or_kept_as_partial() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("n".repeat(250));
        drop(PartialFile::create(&long).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let mut kept = PartialFile::create(&long).unwrap();
        kept.keep();
        let partial = kept.partial().to_owned();
        drop(kept);
        assert!(partial.exists() && partial.to_str().unwrap().ends_with(".partial"));
        let none = PartialFile::create(&dir.path().join("no/folder")).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(2));
    }

    #[test]
    fn a_link_keeps_pointing_where_it_points() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        std::fs::write(&target, "old").unwrap();
        symlink("target", &link).unwrap();
        let mut file = PartialFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.publish().unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&target).unwrap(), b"new");
    }

    #[test]
    fn a_link_to_nothing_has_it_there_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let (first, second) = (dir.path().join("first"), folder.join("second"));
        symlink("folder/second", &first).unwrap();
        symlink("../target", &second).unwrap();
        let mut file = PartialFile::create(&first).unwrap();
        file.write_all(b"new").unwrap();
        file.publish().unwrap();
        assert!(first.is_symlink() && second.is_symlink());
        assert_eq!(std::fs::read(dir.path().join("target")).unwrap(), b"new");
        // Targets in a missing folder, and in a cycle of links.
        symlink("no/folder", dir.path().join("lost")).unwrap();
        symlink("round", dir.path().join("round")).unwrap();
        for (name, number) in [("lost", 2), ("round", 40)] {
            let why = PartialFile::create(&dir.path().join(name)).unwrap_err();
            assert_eq!(why.raw_os_error(), Some(number), "{name}");
            assert!(dir.path().join(name).is_symlink());
        }
    }
}

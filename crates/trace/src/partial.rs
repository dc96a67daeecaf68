//! Files that get their names when they are whole.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// Bytes of a file's name that are kept in that of its part: names end at 255.
const MOST_NAME: usize = 200;

/// A file under way: `NAME.XXXXXX.partial` beside its place, which nobody else has and which
/// is no link to elsewhere. Of two that are written to one place at a time, the one that is
/// published last is there in the end, whole.
#[derive(Debug)]
pub struct PartialFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl PartialFile {
    /// Begins the file `path`. A link there keeps pointing where it points, be it to nothing
    /// yet: the file comes to be there.
    ///
    /// # Errors
    /// It cannot be created, or `path` is a device, a pipe or a folder, which the finished
    /// file would replace, or a link that leads nowhere.
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
                // What the user's mask leaves of it. Never what is there, or a link.
                options.write(true).create_new(true).mode(0o666).open(name)
            })?;
        Ok(PartialFile { file, path })
    }

    /// Where it is until it is published.
    pub fn partial(&self) -> &Path {
        self.file.path()
    }

    /// It is to stay if it is not published: what it holds is good as far as it goes, and
    /// says that it is a part.
    pub fn keep(&mut self) {
        self.file.disable_cleanup(true);
    }

    /// The file.
    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Gives it its name, in place of what had it before. What it returns is the size.
    ///
    /// # Errors
    /// It could not be written, such as to a full disk, or not be renamed.
    pub fn publish(self) -> std::io::Result<u64> {
        self.file().sync_all()?;
        let bytes = self.file().metadata()?.len();
        self.file.persist(&self.path).map_err(|e| e.error)?;
        Ok(bytes)
    }
}

/// Links one behind the other, as many as the kernel follows.
const LINKS: usize = 40;

/// Where a file called `path` lies: there, or where the link there points at last.
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
    // Round and round.
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
    fn what_is_not_published_leaves_nothing_or_what_says_that_it_is_a_part() {
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
        // Where there is no folder for it, and where there is no end.
        symlink("no/folder", dir.path().join("lost")).unwrap();
        symlink("round", dir.path().join("round")).unwrap();
        for (name, number) in [("lost", 2), ("round", 40)] {
            let why = PartialFile::create(&dir.path().join(name)).unwrap_err();
            assert_eq!(why.raw_os_error(), Some(number), "{name}");
            assert!(dir.path().join(name).is_symlink());
        }
    }
}

//! The text format of Valgrind's lackey.

use pagewalk_stream::{OpClass, flags};
use pagewalk_trace::OpenOptions;

use crate::{drain, opened, refused};

#[test]
fn lackey_text_gives_instructions_accesses_and_branches() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lackey.txt");
    let text = "==123== Lackey, an example Valgrind tool\n\
        I  1000,4\n L 7000,8\nI  1004,3\nI  1007,2\nI  1000,4\n S 7008,4\n\
        I  1004,3\n M 7100,4\nI  1007,2\nI  1009,1\n L 8000,160\n";
    std::fs::write(&path, text).unwrap();
    let mut program = opened(&path);
    let facts = program.facts();
    assert!(facts.no_dependences && facts.infer_mappings);
    let ops = drain(program.as_mut()).remove(&0).unwrap().0;
    let brief: Vec<_> = ops
        .iter()
        .map(|o| (o.kind, o.va, o.insns, o.size, o.flags))
        .collect();
    let (t, c) = (flags::TAKEN, flags::CONDITIONAL);
    assert_eq!(
        brief,
        [
            (OpClass::Load, 0x7000, 1, 8, 0),
            (OpClass::Branch, 0x1000, 2, 0, t | c),
            (OpClass::Store, 0x7008, 1, 4, 0),
            (OpClass::Load, 0x7100, 1, 4, 0),
            (OpClass::Store, 0x7100, 0, 4, 0),
            (OpClass::Branch, 0x1000, 1, 0, c),
            (OpClass::Load, 0x8000, 1, 64, 0),
            (OpClass::Load, 0x8040, 0, 64, 0),
            (OpClass::Load, 0x8080, 0, 32, 0),
        ]
    );
    for (line, shown) in [
        (" X 7000,8", "X 7000,8"),
        ("I  10zz,4", "10zz"),
        ("I  1000", "I  1000"),
    ] {
        std::fs::write(&path, format!("{text}{line}\n")).unwrap();
        let message = refused(&path, &OpenOptions::default());
        assert!(
            message.contains(shown) && message.contains("byte"),
            "{message}"
        );
    }
    std::fs::write(&path, [text.as_bytes(), &[b'x'; 10_000]].concat()).unwrap();
    assert!(refused(&path, &OpenOptions::default()).contains("4096"));
}

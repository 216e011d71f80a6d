//! Behaviour that must not depend on a client's home shard and that one transcript cannot express.
//! Every other transcript runs with one, two and three shards anyway.

use sim::parsed_transcript::ParsedTranscript;
use sim::transcript::{WorldSetup, run};

#[test]
fn hash_client_tells_publishers_of_other_shards_apart() {
    let mut text = String::from(
        r#"
        # options: shared.strategy=hash_client
        a> CONNECT id=a
        a> SUBSCRIBE 1 "$share/g/t" qos=0
        b> CONNECT id=b
        b> SUBSCRIBE 1 "$share/g/t" qos=0
        "#,
    );
    for publisher in 0..12 {
        text += &format!("p{publisher}> CONNECT id=p{publisher}\n");
        for _ in 0..2 {
            text += &format!("p{publisher}> PUBLISH \"t\" qos=0 \"p{publisher}\"\n");
        }
    }
    let script = ParsedTranscript::parse(&text).unwrap();
    for seed in 0..6 {
        let came = run(&script, WorldSetup { shards: 2, seed, disk: false });
        let got = |line: &str| came.lines().filter(|came| *came == line).count();
        let to_a: Vec<usize> =
            (0..12).map(|p| got(&format!("a< PUBLISH \"t\" qos=0 \"p{p}\""))).collect();
        let to_b: Vec<usize> =
            (0..12).map(|p| got(&format!("b< PUBLISH \"t\" qos=0 \"p{p}\""))).collect();
        assert!(to_a.iter().zip(&to_b).all(|pair| matches!(pair, (2, 0) | (0, 2))), "{came}");
        assert!(to_a.iter().any(|n| *n > 0) && to_b.iter().any(|n| *n > 0), "{came}");
    }
}

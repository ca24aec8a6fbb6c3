"""The type families of every domain drawn from fonts, and the characters that are its classes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Script:
    """One domain of characters: a class is a character, an example is that character in one family."""

    name: str
    title: str
    role: str
    characters: str
    families: tuple[str, ...]
    n_examples: int = 24


def _families(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _between(first: int, last: int, without: str = "") -> str:
    return "".join(chr(code) for code in range(first, last + 1) if chr(code) not in without)


UPPER = _between(0x41, 0x5A)
LOWER = _between(0x61, 0x7A, without="clopsvwxz")
"""Small letters that differ from their capitals in more than size: every drawing is scaled to one size."""
DIGITS = _between(0x30, 0x39)
MARKS = '!"#$%&()*+/:;<=>?@[]{}^~§¶©®€£¥¢«»¿¡†‡½¼¾±÷×ªº¤µ…'
ACCENTED = _between(0xC0, 0xFF, without="×÷çòóôõöøÐ") + "Œœ"
LATIN = UPPER + LOWER + DIGITS + MARKS + ACCENTED

JAPANESE = _families(
    "hina-mincho kaisei-decol kiwi-maru yuji-boku zen-antique dotgothic16 kosugi-maru mochiy-pop-one "
    "monomaniac-one rocknroll-one stick yusei-magic zen-kurenaido cherry-bomb-one darumadrop-one dela-gothic-one "
    "potta-one rampart-one reggae-one train-one hachi-maru-pop klee-one yomogi slackside-one"
)
KANJI = (
    "右雨円王音下火花学気休玉金九空月犬見五口校左三山四子糸字耳七車手十出女小上森人水正生青夕石赤千川先早草足"
    "村大男竹中虫町天田土二日入年白八百文本名木目力立林六引羽雲園遠何科夏家歌画回会海絵外角楽活間丸岩顔汽記帰弓牛"
    "魚京強教近兄形計元言原戸古午後語工公広交光考行高黄合谷国黒今才細作算止市矢姉思紙寺自時室社弱首秋週春書少場色"
)
SYLLABLES = (
    "가각간갈감강개거건걸검게겨결경고곡공과관구국군권귀그근금기긴길김까꽃나날남내너네노누눈느늘니님다단달담당대더도"
    "독동두드들등디따때라락람래러레려로론료루르를리린림마만말망매머메면명모목몸무문물미민바박반발밤방배버법변별병보복본"
)

SCRIPTS = (
    Script(
        "latin-print", "Latin letters, serif and sans fonts", "id", LATIN,
        _families(
            "merriweather eb-garamond libre-baskerville crimson-text roboto-slab pt-serif arvo cormorant "
            "zilla-slab old-standard-tt playfair-display bitter open-sans roboto lato montserrat oswald raleway "
            "pt-sans josefin-sans quicksand barlow-condensed exo-2 archivo-narrow abeezee cabin"
),
    ),
    Script(
        "latin-hand", "Latin letters, handwriting fonts", "id", LATIN,
        _families(
            "caveat dancing-script pacifico indie-flower shadows-into-light satisfy permanent-marker kalam "
            "great-vibes sacramento gloria-hallelujah courgette handlee patrick-hand cookie parisienne tangerine "
            "kaushan-script homemade-apple reenie-beanie rock-salt covered-by-your-grace nothing-you-could-do "
            "marck-script architects-daughter coming-soon cedarville-cursive mansalva"
),
    ),
    Script(
        "latin-display", "Latin letters, display fonts", "id", LATIN,
        _families(
            "lobster bebas-neue abril-fatface alfa-slab-one bangers righteous comfortaa monoton press-start-2p "
            "creepster special-elite fascinate audiowide black-ops-one bungee-inline unifrakturmaguntia "
            "metamorphous ewert rye faster-one henny-penny limelight rubik-glitch emilys-candy pirata-one megrim "
            "codystar fontdiner-swanky"
),
    ),
    Script(
        "latin-mono", "Latin letters, monospaced fonts", "ood", LATIN,
        _families(
            "anonymous-pro azeret-mono b612-mono chivo-mono courier-prime cousine cutive-mono dm-mono fira-code "
            "fragment-mono ibm-plex-mono inconsolata kode-mono lekton libertinus-mono major-mono-display "
            "martian-mono nova-mono overpass-mono oxygen-mono pt-mono share-tech-mono sixtyfour space-mono "
            "syne-mono ubuntu-mono vt323 xanh-mono"
),
    ),
    Script(
        "cyrillic", "Cyrillic letters", "id",
        _between(0x410, 0x42F) + "абеёђћ" + "ЁЂЃЄЇЉЊЋЌЎЏҐ" + "ѢѲѴҒҖҚҜҢҮҰҲҶҸҺӘӨӁӇӢӮ",
        _families(
            "alice pt-serif playfair-display old-standard-tt oranienbaum prata podkova kurale pt-sans oswald "
            "montserrat exo-2 russo-one jura bad-script caveat marck-script neucha pacifico lobster "
            "ruslan-display kelly-slab press-start-2p comfortaa poiret-one yeseva-one tektur"
),
    ),
    Script(
        "greek", "Greek letters", "id",
        _between(0x391, 0x3A9, without="\u03a2") + _between(0x3AC, 0x3CE, without="οκτι"),
        _families(
            "alegreya cardo caudex eb-garamond gfs-didot gentium-plus literata tinos vollkorn roboto-slab "
            "advent-pro didact-gothic jura open-sans play ubuntu news-cycle tuffy arima comfortaa press-start-2p "
            "tektur comic-relief mansalva mynerve playpen-sans oi nova-mono anonymous-pro"
),
    ),
    Script(
        "hebrew", "Hebrew letters", "id",
        _between(0x5D0, 0x5EA) + "\ufb2a\ufb2b\ufb2f\ufb31\ufb35\ufb3b\ufb44\ufb46\ufb49\ufb4b",
        _families(
            "bellefair bona-nova cardo david-libre frank-ruhl-libre noto-rashi-hebrew suez-one tinos alef "
            "assistant fredoka heebo miriam-libre secular-one varela-round rubik karantina handjet rubik-bubbles "
            "rubik-glitch amatic-sc playpen-sans-hebrew solitreo cousine cascadia-code rubik-marker-hatch"
),
    ),
    Script(
        "devanagari", "Devanagari letters", "id",
        _between(0x905, 0x939, without="ऌऍऎऑऒऩऱऴ") + "ऑऍक़ख़ग़ज़ड़ढ़फ़य़ॐऽॠ" + _between(0x966, 0x96F),
        _families(
            "eczar glegoo inknut-antiqua kadwa karma kurale rozha-one sahitya tiro-devanagari-hindi akshar arya "
            "gotu khand palanquin-dark poppins rajdhani sarpanch teko baloo-2 jaini modak ranga tillana "
            "yatra-one amita dekko kalam"
),
    ),
    Script(
        "kana", "Japanese syllables", "id",
        _between(0x3042, 0x3093, without="ぃぅぇぉっゃゅょゎゐゑ")
        + _between(0x30A2, 0x30F3, without="ィゥェォッャュョヮヰヱヘベペリ"),
        JAPANESE,
    ),
    Script("kanji", "Chinese characters in Japanese fonts", "ood", KANJI, JAPANESE, n_examples=20),
    Script(
        "hangul", "Korean syllables", "ood", SYLLABLES,
        _families(
            "diphylleia gowun-batang grandiflora-one song-myung black-han-sans do-hyeon gasoek-one gowun-dodum "
            "jua orbit stylish bagel-fat-one cute-font gugi kirang-haerang poor-story single-day east-sea-dokdo "
            "gamja-flower hi-melody nanum-brush-script nanum-pen-script"
),
        n_examples=20,
    ),
    Script(
        "arabic", "Arabic letters, isolated forms", "ood",
        "ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىيٹپچڈڑژڤکگھہیے" + _between(0x660, 0x669) + "؟٪",
        _families(
            "alkalami amiri aref-ruqaa gulzar lateef markazi-text mirza noto-nastaliq-urdu ruwudu "
            "scheherazade-new almarai cairo changa el-messiri harmattan lalezar noto-kufi-arabic qahiri "
            "reem-kufi tajawal vazirmatn baloo-bhaijaan-2 handjet katibeh lemonada marhey oi rakkas vibes "
            "playpen-sans-arabic"
),
    ),
    Script(
        "thai", "Thai letters", "ood",
        _between(0xE01, 0xE2E) + "ฯะาเแโใไๆ๏" + _between(0xE50, 0xE5B, without="๚๛"),
        _families(
            "maitree noto-serif-thai pridi taviraj trirong athiti bai-jamjuree chakra-petch fahkwang "
            "ibm-plex-sans-thai-looped k2d kanit koho kodchasan krub mitr niramit noto-sans-thai-looped pattaya "
            "chonburi charm charmonman itim mali sriracha playpen-sans-thai"
),
    ),
    Script(
        "telugu", "Telugu letters", "ood",
        _between(0xC05, 0xC14, without="\u0c0d\u0c11") + _between(0xC15, 0xC39, without="\u0c29\u0c34")
        + _between(0xC66, 0xC6F) + "ౠ",
        _families(
            "noto-serif-telugu peddana ramaraja tiro-telugu anek-telugu dhurjati gurajada hind-guntur mallanna "
            "mandali ntr ramabhadra sirivennela timmana akaya-telivigala ponnala ravi-prakash lakki-reddy"
),
    ),
    Script(
        "tamil", "Tamil letters", "ood",
        "அஆஇஈஉஊஎஏஐஒஓஃகஙசஜஞடணதநனபமயரறலளழவஶஷஸஹ" + _between(0xBE6, 0xBF2, without="௧௨௪௭௮"),
        _families(
            "noto-serif-tamil catamaran hind-madurai karla-tamil-inclined karla-tamil-upright mukta-malar "
            "noto-sans-tamil pavanam arima baloo-thambi-2 coiny kavivanar oi"
),
    ),
    Script(
        "khmer", "Khmer letters", "ood",
        _between(0x1780, 0x17A2, without="ឝឞ") + _between(0x17A5, 0x17B3, without="ឨ")
        + _between(0x17E0, 0x17E9) + "ៗ។៛",
        _families(
            "hanuman koh-santepheap noto-serif-khmer odor-mean-chey suwannaphum bayon kantumruy-pro "
            "kdam-thmor-pro khmer moulpali nokora noto-sans-khmer preahvihear siemreap angkor battambang bokor "
            "chenla content dangrek fasthand freehand konkhmer-sleokchher koulen moul taprom"
),
    ),
)  # fmt: skip

"""A tree like a kernel source: tree.py ROOT FILES makes that many files, one directory for 15 of them."""
import os,random,sys
random.seed(1); root=sys.argv[1]; n=int(sys.argv[2])
dirs=['']
os.makedirs(root,exist_ok=True)
for i in range(n//15):
    d=random.choice(dirs if random.random()<.5 else dirs[-60:])
    if d.count('/')>7: d=''
    p=f"{d}/dir{i}"; os.mkdir(root+p); dirs.append(p)
b=os.urandom(1<<20)
for i in range(n):
    d=random.choice(dirs); s=min(int(random.lognormvariate(8.6,1.3)),1<<20)
    with open(f"{root}{d}/file_{i}.c",'wb') as f: f.write(b[:s])
